State    Recv-Q Send-Q Local Address:Port   Peer Address:Port Process
SYN-SENT 0      1      10.31.0.9:40122      10.31.0.4:29612   users:(("torchrun",pid=6034,fd=6)) timer:(on,27sec,5)
ESTAB    0      0      10.31.0.9:22         10.30.9.2:50118 users:(("sshd",pid=70911,fd=4)) timer:(keepalive,58min,0)

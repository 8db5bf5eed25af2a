State    Recv-Q Send-Q Local Address:Port   Peer Address:Port Process
ESTAB    0      0      10.31.0.5:44190      10.31.0.4:29612   users:(("torchrun",pid=5120,fd=6)) timer:(keepalive,112min,0)
ESTAB    0      0      10.31.0.5:22         10.30.9.2:50114 users:(("sshd",pid=61200,fd=4))

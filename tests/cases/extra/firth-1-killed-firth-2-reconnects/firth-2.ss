State    Recv-Q Send-Q Local Address:Port   Peer Address:Port Process
SYN-SENT 0      1      10.9.2.2:50992       10.9.2.1:29500    users:(("python",pid=30285,fd=40))

State    Recv-Q Send-Q Local Address:Port   Peer Address:Port Process
ESTAB    0      0      10.44.1.2:55310      10.44.1.1:29500   users:(("python",pid=30268,fd=31))

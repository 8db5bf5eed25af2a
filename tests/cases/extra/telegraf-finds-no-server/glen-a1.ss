State    Recv-Q Send-Q Local Address:Port   Peer Address:Port Process
ESTAB    0      0      10.44.1.1:29500      10.44.1.2:55310   users:(("python",pid=30200,fd=31))
SYN-SENT 0      1      10.44.1.1:39418      10.60.0.8:8125    users:(("telegraf",pid=1871,fd=9)) timer:(on,14sec,4)
SYN-SENT 0      1      10.44.1.1:39420      10.60.0.8:8125    users:(("telegraf",pid=1871,fd=11)) timer:(on,22sec,5)

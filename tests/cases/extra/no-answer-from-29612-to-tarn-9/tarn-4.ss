State    Recv-Q Send-Q Local Address:Port   Peer Address:Port Process
LISTEN   0      2048               *:29612            *:*     users:(("torchrun",pid=7710,fd=3))
LISTEN   0      128          0.0.0.0:22          0.0.0.0:*     users:(("sshd",pid=1104,fd=3))
ESTAB    0      0      [::ffff:10.31.0.4]:29612 [::ffff:10.31.0.5]:44190 users:(("torchrun",pid=7710,fd=9))
ESTAB    0      0      10.31.0.4:22         10.30.9.2:50112 users:(("sshd",pid=88012,fd=4))

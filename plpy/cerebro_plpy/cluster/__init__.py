"""The code that only Greenplum needs. Other rooms use it through `server.py`.

A session on the coordinator has the tables; its process on each segment has the rows and the engine.
`protocol.py` describes the messages between the two.
"""

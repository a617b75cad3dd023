"""Which other rules an injection violates too: by rule and name. Each was looked at; a verdict that is not named here is a false one.

Most are of these kinds: a request that no broker has to answer is answered (W-05); bytes that do not decode (W-09); the changed frame
disagrees with others about one partition epoch (C-19) or leader epoch (C-18); a frame that says less leaves other frames without cause.
"""

OTHER_RULES: dict[tuple[str, str], tuple[str, ...]] = {
    ("W-02", "a version one above the range is answered"): ("W-05", "K-02"),
    ("W-02", "an API that is not advertised is answered"): ("W-05", "K-02"),
    ("W-04", "ApiVersions of the future is answered with error 0"): ("K-02",),
    ("W-05", "a request of an unknown API is answered"): ("W-02",),
    ("W-06", "a second ApiVersions is answered before authentication"): ("V-01",),  # they name no API
    ("W-06", "one ApiVersions is answered before authentication"): ("V-01",),
    ("W-08", "a request has many bytes over, and its length says so"): ("K-03",),  # the server may take it
    ("W-09", "a client's request has a byte over"): ("K-03",),
    ("W-10", "the correlation ids of a client fall"): ("W-13",),  # the client is a broker, whose journal has another id
    ("W-07", "ApiVersions has a header of version 1"): ("W-04", "W-09"),  # it is the answer to a version of the future
    ("W-07", "a flexible answer has a header of version 0"): ("W-09",),
    ("W-08", "a frame is one byte longer than its length says"): ("W-09",),
    ("W-08", "a frame is much shorter than its length says"): ("W-09",),
    ("C-01", "a leader epoch falls by one behind LeaderAndIsr"): ("C-18", "C-19"),
    ("C-01", "a leader epoch falls to zero in UpdateMetadata"): ("C-19",),
    ("C-01", "a leader epoch is negative"): ("C-19",),
    ("C-02", "a leader is not in the ISR"): ("C-19",),
    ("C-02", "one member of the ISR is no replica"): ("C-19",),
    ("C-03", "a good request is refused"): ("C-16", "C-25"),  # and Metadata shows what it said; the controller got another answer
    ("C-03", "a request with the epoch before is taken"): ("C-04",),
    ("C-06", "a partition recovers with two members"): ("C-07", "C-19"),
    ("C-06", "a partition with two members has the mark"): ("C-19",),
    ("C-07", "an unclean election keeps the leader epoch"): ("C-18", "C-19"),
    ("C-08", "the mark goes without AlterPartition"): ("C-19",),
    ("C-08", "the mark goes though AlterPartition is refused"): ("C-19",),
    ("C-09", "LeaderAndIsr is sent for a change of the ISR"): ("C-13",),  # it lists the brokers of another moment
    ("C-10", "UpdateMetadata before LeaderAndIsr"): ("C-25",),  # their answers changed places in one journal
    ("C-16", "Metadata leaves a live broker out"): ("M-01",),  # which leads a partition
    ("C-16", "Metadata has a broker that does not live"): ("M-01",),
    ("C-17", "a new partition is led by its second replica"): ("C-13", "C-18", "C-19"),
    ("C-17", "a new partition has leader epoch 1"): ("C-01", "C-19"),
    ("C-18", "a leader epoch has two leaders"): ("C-13", "C-19"),
    ("C-18", "a leader epoch has a leader and none"): ("C-19",),
    ("C-19", "a leader epoch jumps"): ("C-01",),  # the next request has the true one
    ("C-20", "LeaderAndIsr goes to no replica"): ("C-18", "C-19"),
    ("C-20", "no UpdateMetadata follows"): ("C-12", "C-16"),
    ("C-21", "AlterPartition gets a partition epoch two higher"): ("C-19",),
    ("C-22", "a controller resigns early, and goes on"): ("E-04",),
    ("E-01", "ElectLeaders answers NONE where it is not the controller"): ("E-04",),
    ("E-04", "another broker than the controller creates a topic"): ("C-24",),  # which never comes
    ("G-02", "the generation of a group leaves one out"): ("G-04",),  # the members go on with the true one
    ("G-02", "the generation of a group goes back"): ("G-04",),
    ("L-01", "a base offset is far above the next one"): ("L-03",),
    ("L-01", "a batch of an idempotent producer is a duplicate of the first one"): ("P-03",),  # with other records
    ("L-03", "ListOffsets says that an old record is the end"): ("L-02",),
    ("T-03", "the second producer gets a lower epoch"): ("T-07",),  # a negative one
    ("T-04", "a fenced producer ends its transaction"): ("T-02",),
    ("T-04", "a producer that was replaced adds partitions"): ("T-01",),  # so they are not in the transaction of the newer one
    ("K-01", "a request lacks its last byte"): ("W-05",),
    ("K-01", "a request has nothing"): ("W-05",),
    ("K-02", "a request is one version above what is advertised"): ("W-05",),  # the connection serves on
    ("K-02", "a request is far above what is advertised"): ("W-05",),
    ("K-04", "a batch has magic 1"): ("P-01",),  # the next one is the first that has a sequence number
    ("K-07", "a consumer commits offset -1"): ("G-05",),  # and gets the true one
    ("K-11", "a follower goes on after its epoch was refused"): ("F-05",),  # it was the next one
    ("K-12", "a transaction ends as in the second version of transactions"): ("K-01", "K-02", "T-01"),  # its body is that of version 1
    ("K-12", "offsets are added as in the second version of transactions"): ("K-02",),
    ("F-05", "a broker takes the epoch after the next"): ("K-10",),
    ("F-05", "a broker refuses the epoch after the next"): ("K-10",),
    ("G-08", "a group begins with generation 0"): ("G-04",),
    ("M-01", "a leader is the broker after the last"): ("C-16",),
    ("M-01", "the brokers are others than the leaders"): ("C-16",),
    ("M-02", "a partition without an error has no leader"): ("C-16",),
    ("M-03", "the partitions of a topic are not numbered to the end"): ("C-16",),
    ("M-04", "a leader epoch falls by one"): ("C-16",),
    ("M-04", "a leader epoch falls from a high one"): ("C-16",),
    ("M-04", "a leader epoch is not told, and told again"): ("C-16",),
    ("M-05", "a broker is at port 0"): ("C-16",),
    ("M-05", "a broker is there twice"): ("C-16",),
    ("M-06", "one topic of two has no id"): ("W-11",),  # nobody asked for it
    ("M-07", "a cluster id has another last letter"): ("C-16",),
    ("M-07", "a cluster id is another one"): ("C-16",),
    ("M-08", "a coordinator is at port 0"): ("C-23",),
    ("P-04", "records without an answer are sent in the next epoch"): ("W-03",),
    ("P-06", "a batch behind a gap of one is taken"): ("P-02",),
    ("P-06", "a batch behind a large gap is taken"): ("P-02",),
    ("P-06", "a batch behind a gap is refused"): ("P-02",),
    ("V-02", "groups end one version before they can be static"): ("V-01",),
    ("W-13", "a request is one byte longer where it arrives"): ("K-03",),
    ("W-13", "a request does not arrive"): ("F-05", "K-10"),  # the session of the follower lacks an epoch there
}

NOT_FOUND = {
    "T-02": "in the recording of a proxy, one lost marker, if a later transaction of the same producer and epoch ended alike and was the "
            "last one: it does not show when a coordinator of Apache Kafka sends markers to other brokers, so the rule counts them",
}
"""Violations that were tried and that the rule does not find, so they are not among the injections."""

NO_COUNTERPART = {
    "F-01": "that the high watermark is below the last stable offset is in the fixtures: a broker reads them at different moments",
    "F-03": "all batches of the stories are right ones",
    "K-01": "a request decodes or does not; the journals are full of those that do",
    "M-01": "leaders of the stories are among the brokers",
    "P-01": "producers of the stories begin with sequence number 0",
    "W-13": "what a broker got is in its journal as it was sent",
    "C-18": "a leader epoch has one leader or two, and nothing is between: the stories have many states of a leader epoch, with one leader",
}
"""Rules without a change that is just allowed, and why."""

NOT_INJECTED = {
    "L-04": "it judges runs without the frames of a controller, and the stories have them; its fixtures are of clients alone",
}
"""Rules into which nothing is injected, and why."""

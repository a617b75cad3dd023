"""The three smallest tests: a fault, a hold, a dead broker."""

from concurrent.futures import ThreadPoolExecutor

from kafka import KafkaAdminClient, KafkaProducer


def test_a_producer_sends_again_after_an_error(klamm):
    fault = klamm.fault(api="Produce", error="NOT_LEADER_OR_FOLLOWER", first=1)
    send(klamm, klamm.create_topic(klamm.topic_name("orders")))
    assert fault.hits == 1


def test_a_topic_is_created_when_the_controller_goes_on(klamm):
    topic = klamm.topic_name("held")
    admin = KafkaAdminClient(bootstrap_servers=klamm.bootstrap_servers)
    with klamm.hold("ZooKeeperWrite", paths=f"/brokers/topics/{topic}") as hold, ThreadPoolExecutor() as other:
        created = other.submit(admin.create_topics, [topic])
        hold.wait()
        hold.release()
        created.result()


def test_a_producer_finds_the_next_leader_when_the_first_one_is_dead(klamm):
    topic = klamm.create_topic(klamm.topic_name("orders"))
    klamm.kill_broker(klamm.wait_for_leader(topic, 0))
    send(klamm, topic)


def send(klamm, topic):
    with KafkaProducer(bootstrap_servers=klamm.bootstrap_servers) as producer:
        producer.send(topic, b"a record").get()

// A cluster of Klamm in a container. It needs the module modules/node, and docker on PATH.
import assert from "node:assert";
import { after, test } from "node:test";
import { Kafka } from "kafkajs";
import { start } from "klamm";

const cluster = await start({ image: "klamm-serve", topics: ["orders:1:3"] });
const kafka = new Kafka({ brokers: cluster.brokers });
after(() => cluster.stop());

test("a producer sends again after an error", cluster.test(async () => {
  const fault = await cluster.fault({ api: "Produce", error: "NOT_LEADER_OR_FOLLOWER", first: 1 });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ value: "a book" }] });
  await producer.disconnect();
  assert.equal(await fault.hits(), 1);
}));

test("a topic is created when the controller goes on", cluster.test(async () => {
  const hold = await cluster.hold("ZooKeeperWrite", { paths: "/brokers/topics/bills" });
  const admin = kafka.admin();
  await admin.connect();
  const created = admin.createTopics({ topics: [{ topic: "bills", numPartitions: 1 }] });
  await hold.reached();
  await hold.release();
  assert.equal(await created, true);
  await admin.disconnect();
}));

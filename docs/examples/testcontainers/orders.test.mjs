import assert from "node:assert";
import net from "node:net";
import test from "node:test";
import { Kafka } from "kafkajs";
import { GenericContainer, Wait } from "testcontainers";

// Clients of the cluster must know their port before it starts, so a free one is chosen here.
function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

test("a record is read", async () => {
  const port = await freePort();
  const address = `localhost:${port}`;
  const klamm = await new GenericContainer("klamm-serve")
    .withEnvironment({ KLAMM_ADVERTISED: address })
    .withCommand(["serve", "--brokers", "1", "--topic", "orders:1:1"])
    .withExposedPorts({ container: 9092, host: port })
    .withWaitStrategy(Wait.forLogMessage(address))
    .start();
  const kafka = new Kafka({ brokers: [address] });
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ value: "record" }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "billing" });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  const value = await new Promise((resolve) => consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }));
  assert.equal(value, "record");
  await consumer.disconnect();
  await klamm.stop();
});

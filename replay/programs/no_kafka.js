// Runs a release of no-kafka: a member of a group.
const Kafka = require('no-kafka');

const env = process.env;
const config = Object.fromEntries(env.CONFIG.split('\n').map((line) => line.split(/=(.*)/s).slice(0, 2)));
const consumer = new Kafka.GroupConsumer({
    clientId: config['client.id'], connectionString: env.BOOTSTRAP, groupId: env.GROUP, startingOffset: Kafka.EARLIEST_OFFSET, logger: {logLevel: 1},
    sessionTimeout: 6000, idleTimeout: 100,
});
async function take(messages, topic, partition) {
    for (const each of messages) {
        const value = each.message.value.toString();
        console.log(JSON.stringify({partition, offset: each.offset, value}));
        await consumer.commitOffset({topic, partition, offset: each.offset + 1});
        if (value === 'end') setTimeout(() => consumer.end().then(() => process.exit(0)), 0);
    }
}
consumer.init([{subscriptions: [env.TOPIC], handler: take}]).catch((error) => { console.error(error); process.exit(1); });
if (env.TESTCASE === 'join') setTimeout(() => consumer.end().then(() => process.exit(0)), 1500);

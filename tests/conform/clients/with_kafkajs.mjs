// An adapter of kafkajs for `klamm conform --client`. Argument: the folder that has node_modules.
import { createRequire } from 'node:module'
import { resolve } from 'node:path'
const { Kafka, logLevel, CompressionTypes } = createRequire(resolve(process.argv[2]) + '/')('kafkajs')
const env = process.env, task = env.TESTCASE, topic = env.TOPIC, partition = Number(env.PARTITION), records = Number(env.RECORDS)
const config = Object.fromEntries(env.CONFIG.split('\n').map(line => line.split(/=(.*)/s)))
const names = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
if (!['produce', 'transaction', 'group'].includes(task)) process.exit(127)
if (config['partition.assignment.strategy'] === 'cooperative-sticky' || config['group.instance.id']) process.exit(127)
const compression = names[config['compression.type'] ?? 'none'] ?? process.exit(127)
const retry = { retries: 30, initialRetryTime: 50, maxRetryTime: 500 }
const kafka = new Kafka({ clientId: config['client.id'], brokers: env.BOOTSTRAP.split(','), requestTimeout: Number(config['request.timeout.ms']), logLevel: logLevel.NOTHING, retry })
const tell = (partition, offset, value) => console.log(JSON.stringify({ partition, offset: Number(offset), value }))
const sleep = ms => new Promise(done => setTimeout(done, ms))
const acks = { all: -1, 1: 1, 0: 0 }[config.acks]
async function produce(sender, first) {
  for (let number = first; number < first + records; number++) {
    const value = String(number).padEnd(Number(env.SIZE), '.')
    const [at] = await sender.send({ topic, acks, compression, messages: [{ value, partition }] })
    if (at) tell(at.partition, at.baseOffset, value)
    await sleep(Number(env.PAUSE_MS))
  }
}
if (task === 'group') {
  const consumer = kafka.consumer({ groupId: env.GROUP, sessionTimeout: Number(config['session.timeout.ms']), heartbeatInterval: Number(config['heartbeat.interval.ms']), metadataMaxAge: Number(config['metadata.max.age.ms'] ?? 300000), maxWaitTimeInMs: 500, retry })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let over
  const ended = new Promise(done => { over = done })
  await consumer.run({ autoCommit: false, eachMessage: async ({ partition, message }) => {
    tell(partition, message.offset, String(message.value))
    await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
    if (String(message.value) === 'end') over()
  } })
  await ended
  await consumer.disconnect()
} else {
  const producer = kafka.producer({ idempotent: config['enable.idempotence'] === 'true', transactionalId: config['transactional.id'], maxInFlightRequests: 1, allowAutoTopicCreation: false, retry })
  await producer.connect()
  for (let number = 0; number < Number(env.TRANSACTIONS); number++) {
    const transaction = task === 'transaction' ? await producer.transaction() : undefined
    await produce(transaction ?? producer, number * records)
    if (transaction) await (env.END === 'commit' ? transaction.commit() : transaction.abort())
  }
  await producer.disconnect()
}
process.exit(0)

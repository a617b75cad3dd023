// An adapter of kafkajs for `klamm conform --client`. Argument: the folder that has node_modules.
import { createRequire } from 'node:module'
import { resolve } from 'node:path'
const { Kafka, logLevel, CompressionTypes } = createRequire(resolve(process.argv[2]) + '/')('kafkajs')
const env = process.env, task = env.TESTCASE, topic = env.TOPIC, partition = Number(env.PARTITION), records = Number(env.RECORDS)
const config = Object.fromEntries(env.CONFIG.split('\n').map(line => line.split(/=(.*)/s)))
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }, codec = config['compression.type'] ?? env.CODEC ?? 'none'
const isMember = task === 'group', isCooperative = config['partition.assignment.strategy'] === 'cooperative-sticky'
if (!['produce', 'transaction', 'group'].includes(task) || !(codec in codecs) || isCooperative || config['group.instance.id']) process.exit(127)
const retry = { retries: 30, initialRetryTime: 50, maxRetryTime: 500 }, acks = { all: -1, 1: 1, 0: 0 }[config.acks]
const sasl = config['sasl.mechanism'] && { mechanism: config['sasl.mechanism'].toLowerCase(), username: config['sasl.username'], password: config['sasl.password'] }
const requestTimeout = Number(config['request.timeout.ms'])
const kafka = new Kafka({ clientId: config['client.id'], brokers: env.BOOTSTRAP.split(','), requestTimeout, logLevel: logLevel.NOTHING, retry, sasl })
const tell = (partition, offset, value) => console.log(JSON.stringify({ partition, offset: Number(offset), value }))
async function produce(sender, number) {
  for (let each = number * records; each < (number + 1) * records; each++) {
    const value = String(each).padEnd(Number(env.SIZE), '.')
    const [at] = await sender.send({ topic, acks, compression: codecs[codec], messages: [{ value, partition }] })
    if (at) tell(at.partition, at.baseOffset, value)
    await new Promise(done => setTimeout(done, Number(env.PAUSE_MS)))
  }
}
const client = isMember
  ? kafka.consumer({ groupId: env.GROUP, sessionTimeout: 6000, heartbeatInterval: 300, metadataMaxAge: Number(config['metadata.max.age.ms'] ?? 300000), maxWaitTimeInMs: 500, retry })
  : kafka.producer({ idempotent: config['enable.idempotence'] === 'true', transactionalId: config['transactional.id'], maxInFlightRequests: 1, allowAutoTopicCreation: false, retry })
await client.connect()
for (let number = 0; number < Number(env.TRANSACTIONS) && !isMember; number++) {
  const transaction = task === 'transaction' ? await client.transaction() : undefined
  await produce(transaction ?? client, number)
  await (env.END === 'commit' ? transaction?.commit() : transaction?.abort())
}
if (isMember) await client.subscribe({ topic, fromBeginning: true })
if (isMember) await new Promise(over => client.run({ autoCommit: false, eachMessage: async ({ partition, message }) => {
  tell(partition, message.offset, String(message.value))
  await client.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
  if (String(message.value) === 'end') over()
} }))
await client.disconnect()
process.exit(0)

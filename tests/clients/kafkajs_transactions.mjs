// kafkajs's transactional producer: a commit, an abort, offsets in a transaction. Arguments: folder with node_modules, bootstrap, topic, group.
import { createRequire } from 'node:module'

const [modules, bootstrap, topic, group] = process.argv.slice(2)
const { Kafka, logLevel } = createRequire(modules + '/')('kafkajs')
const kafka = new Kafka({ clientId: 'test', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const say = (what, answer) => console.log(JSON.stringify({ what, answer }))

const newProducer = async () => {
  const producer = kafka.producer({ transactionalId: group, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  return producer
}
const send = (transaction, ...values) => transaction.send({ topic, acks: -1, messages: values.map(value => ({ value, partition: 0 })) })

const producer = await newProducer()
const committed = await producer.transaction()
await send(committed, 'committed 0', 'committed 1')
await committed.commit()
const aborted = await producer.transaction()
await send(aborted, 'aborted')
await aborted.abort()
const moving = await producer.transaction()
await send(moving, 'with offsets')
await moving.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition: 0, offset: '7' }] }] })
await moving.commit()

const second = await newProducer()
const next = await second.transaction()
await send(next, 'of the second')
await next.commit()
try {
  const late = await producer.transaction()
  await send(late, 'fenced')
  await late.commit()
  say('fenced', 'not fenced')
} catch (error) {
  say('fenced', error.type ?? error.name)
}
await producer.disconnect()
await second.disconnect()

const admin = kafka.admin()
await admin.connect()
const [offsets] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
say('offsets', offsets.partitions.map(each => Number(each.offset)))
await admin.disconnect()
process.exit(0)

// kafkajs as a member of a consumer group: settings and lines of JSON as in consuming.py. Arguments: folder with node_modules, settings.
import { createRequire } from 'node:module'

const [modules, given] = process.argv.slice(2)
const { bootstrap, topic, group, session_ms: sessionTimeout } = JSON.parse(given)
const { Kafka, logLevel } = createRequire(modules + '/')('kafkajs')
const say = what => console.log(JSON.stringify(what))
const retry = { retries: 100, initialRetryTime: 50, maxRetryTime: 500 }
const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, retry })
// it sends heartbeats between two fetches only
const times = { sessionTimeout, heartbeatInterval: 300, maxWaitTimeInMs: 300, metadataMaxAge: 2000 }
const consumer = kafka.consumer({ groupId: group, ...times, retry })

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say({ assignment: (payload.memberAssignment[topic] ?? []).toSorted((a, b) => a - b) }))
consumer.on(consumer.events.CRASH, ({ payload }) => say({ error: payload.error.type ?? payload.error.name }))
process.stdin.on('end', async () => {
  await consumer.disconnect()
  process.exit(0)
})
process.stdin.resume()
await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
await consumer.run({
  autoCommit: false,
  eachBatch: async ({ batch }) => {
    say({ records: batch.messages.map(message => [batch.partition, Number(message.offset), message.value.toString()]) })
    const offset = String(BigInt(batch.lastOffset()) + 1n)
    try {
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset }])
      say({ committed: true })
    } catch (error) {
      say({ error: error.type ?? error.name })
      throw error
    }
  }
})

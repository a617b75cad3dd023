// kafkajs as a member of a consumer group: settings and lines of JSON as in consuming.py. Arguments: folder with node_modules, settings.
import { createRequire } from 'node:module'

const [modules, given] = process.argv.slice(2)
const { bootstrap, topic, group, strategy, session_ms: sessionTimeout } = JSON.parse(given)
const { AssignerProtocol, Kafka, PartitionAssigners, logLevel } = createRequire(modules + '/')('kafkajs')
const { MemberMetadata, MemberAssignment } = AssignerProtocol
const say = what => console.log(JSON.stringify(what))
// few retries: while it tries to reach a broker that is stopped, it sends no heartbeats
const retry = { retries: 5, initialRetryTime: 50, maxRetryTime: 300 }
const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, retry })
// it sends heartbeats between two fetches only
const times = { sessionTimeout, heartbeatInterval: 300, maxWaitTimeInMs: 300, metadataMaxAge: 2000 }
// the strategy of the other libraries: kafkajs itself has only a round robin that it names as no other library does
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  protocol: ({ topics }) => ({ name: 'range', metadata: MemberMetadata.encode({ version: 0, topics }) }),
  assign: async ({ members }) => {
    const ids = members.map(member => member.memberId).toSorted()
    const partitions = cluster.findTopicPartitionMetadata(topic).map(each => each.partitionId).toSorted((a, b) => a - b)
    const [size, more] = [Math.floor(partitions.length / ids.length), partitions.length % ids.length]
    return ids.map(memberId => {
      const assignment = { [topic]: partitions.splice(0, size + (ids.indexOf(memberId) < more ? 1 : 0)) }
      return { memberId, memberAssignment: MemberAssignment.encode({ version: 0, assignment }) }
    })
  }
})
const partitionAssigners = [strategy === 'range' ? range : PartitionAssigners.roundRobin]
const consumer = kafka.consumer({ groupId: group, ...times, retry, partitionAssigners })

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say({ assignment: (payload.memberAssignment[topic] ?? []).toSorted((a, b) => a - b) }))
consumer.on(consumer.events.CRASH, ({ payload }) => say({ error: `crash: ${payload.error.message}, restarts: ${payload.restart}` }))
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
      // thrown on, an error of a commit ends the consumer for good
      say({ error: error.type ?? error.name })
    }
  }
})

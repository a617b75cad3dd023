// kafkajs's admin client: one line of JSON for each answer, {"what": ..., ...}. Arguments: folder with node_modules, bootstrap, topic name.
import { createRequire } from 'node:module'

const [modules, bootstrap, topic] = process.argv.slice(2)
const { Kafka, logLevel } = createRequire(modules + '/')('kafkajs')
const admin = new Kafka({ clientId: 'test', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING }).admin({ retry: { retries: 2, initialRetryTime: 100 } })
const say = (what, answer) => console.log(JSON.stringify({ what, answer: answer ?? null }))

// kafkajs itself refreshes metadata in the background, so what was just made is looked at until it is there
const until = async (look, holds) => {
  for (const end = Date.now() + 20000; ; await new Promise(resolve => setTimeout(resolve, 20))) {
    try {
      const found = await look()
      if (holds(found)) return found
    } catch (error) {
      if (Date.now() > end) throw error
    }
    if (Date.now() > end) throw new Error('not in time')
  }
}
const described = async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions
const refused = async act => {
  try {
    await act()
    return 'done'
  } catch (error) {
    return error.errors ? error.errors.map(e => e.type) : (error.type ?? error.cause?.type)
  }
}

await admin.connect()
say('cluster', await admin.describeCluster())
say('created', await admin.createTopics({ topics: [{ topic, numPartitions: 2, replicationFactor: 3 }] }))
say('again', await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] }))
say('bad name', await refused(() => admin.createTopics({ topics: [{ topic: 'a/b', numPartitions: 1 }] })))
say('bad factor', await refused(() => admin.createTopics({ topics: [{ topic: topic + '-x', replicationFactor: 7 }] })))
const assignment = [{ partition: 0, replicas: [3, 1] }, { partition: 1, replicas: [1, 2] }]
say('assigned', await admin.createTopics({ topics: [{ topic: topic + '-a', replicaAssignment: assignment }] }))
say('metadata', await until(described, found => found.length === 2))
say('grown', await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] }))
say('more metadata', await until(described, found => found.length === 5))
const resource = { type: 2, name: topic }
const config = async () => (await admin.describeConfigs({ includeSynonyms: false, resources: [resource] })).resources[0]
say('config', (await config()).configEntries.length)
await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '7000' }] }] })
const retention = found => found.configEntries.find(entry => entry.configName === 'retention.ms')
say('altered', retention(await until(config, found => retention(found).configValue === '7000')))
await admin.deleteTopics({ topics: [topic, topic + '-a'] })
say('deleted', await until(() => admin.listTopics(), found => !found.some(name => name.startsWith(topic))))
say('unknown', await refused(() => admin.deleteTopics({ topics: [topic] })))
await admin.disconnect()

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import kafkajs from 'kafkajs'
import { start } from 'klamm'

let cluster, kafka
before(async () => {
  cluster = await start({ topics: ['faults:1', 'deaths:1:3'] })
  kafka = new kafkajs.Kafka({ brokers: cluster.brokers, logLevel: kafkajs.logLevel.NOTHING })
})
after(async () => { await cluster?.stop() })

test('a producer sends again after an error', async () => {
  const fault = await cluster.fault({ api: 'Produce', topic: 'faults', error: 'NOT_LEADER_OR_FOLLOWER', first: 1 })
  await send('faults')
  assert.equal(await fault.hits(), 1)
})

test('a topic is created when the controller goes on', async () => {
  const hold = await cluster.hold('ZooKeeperWrite', { paths: '/brokers/topics/held' })
  const admin = kafka.admin()
  await admin.connect()
  const created = admin.createTopics({ topics: [{ topic: 'held' }] })
  await hold.reached()
  await hold.release()
  assert.equal(await created, true)
  await admin.disconnect()
})

test('a producer finds the next leader when the first one is dead', async () => {
  await cluster.control.killBroker(await cluster.waitForLeader('deaths', 0), { expire: true })
  await send('deaths')
})

async function send (topic) {
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'a record' }] })
  await producer.disconnect()
}

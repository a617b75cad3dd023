// A producer of kafkajs sends again after NOT_LEADER_OR_FOLLOWER. Run it with: npm install kafkajs && node --test
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { after, before, test } from 'node:test'
import kafkajs from 'kafkajs'

let klamm, cluster

before(async () => {
  const options = ['serve', '--port', '0', '--json', '--stop-with-stdin', '--control-port', '0', '--topic', 'orders:1']
  klamm = spawn('klamm', options, { stdio: ['pipe', 'pipe', 'inherit'] })
  const [line] = await once(createInterface({ input: klamm.stdout }), 'line')
  cluster = JSON.parse(line)
})

after(async () => {
  klamm.kill('SIGTERM')
  await once(klamm, 'exit')
})

async function control (path, body) {
  const options = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
  const response = await fetch(`${cluster.control}${path}`, options)
  const value = await response.json()
  assert.ok(response.ok, value.error)
  return value
}

test('a producer sends again after an error', async () => {
  const fault = await control('/faults', {
    filter: { api: 'Produce', client_id: 'shop', topic: 'orders' }, effect: { error: 'NOT_LEADER_OR_FOLLOWER' }, first: 1,
  })
  const kafka = new kafkajs.Kafka({ clientId: 'shop', brokers: cluster.bootstrap_servers.split(','), logLevel: kafkajs.logLevel.NOTHING })
  const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
  await producer.connect()
  const [sent] = await producer.send({ topic: 'orders', messages: [{ value: 'a record' }] })
  await producer.disconnect()
  assert.equal(sent.baseOffset, '0')
  assert.equal((await control(`/faults/${fault.id}?hits=1`)).hits, 1)
  const { requests } = await control('/requests?api=Produce&client_id=shop')
  assert.deepEqual(requests.map(request => request.error), ['NOT_LEADER_OR_FOLLOWER', null])
})

// What the module does, with kafkajs and @platformatic/kafka. KLAMM names the program.
import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { connect as connectTo } from 'node:net'
import { after, before, describe, test } from 'node:test'
import kafkajs from 'kafkajs'
import { connect, start } from 'klamm'

let cluster

before(async () => {
  cluster = await start({ topics: ['orders:1', 'slow:1'], journal: true, config: { 'group.initial.rebalance.delay.ms': 0 } })
})

after(async () => { await cluster?.stop() })

function client (clientId) {
  return new kafkajs.Kafka({ clientId, brokers: cluster.brokers, logLevel: kafkajs.logLevel.NOTHING })
}

async function produce (clientId, topic, value = 'a record') {
  const producer = client(clientId).producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner })
  await producer.connect()
  try {
    return await producer.send({ topic, messages: [{ value }] })
  } finally {
    await producer.disconnect()
  }
}

describe('a cluster', () => {
  test('a producer sends again after an error', async () => {
    const fault = await cluster.fault({ api: 'Produce', client_id: 'shop', topic: 'orders', error: 'NOT_LEADER_OR_FOLLOWER', first: 1 })
    const [sent] = await produce('shop', 'orders')
    assert.equal(sent.baseOffset, '0')
    await fault.waitForHits(1)
    assert.equal(await fault.hits(), 1)
    const requests = await cluster.requests({ api: 'Produce', client_id: 'shop' })
    assert.deepEqual(requests.map(each => each.error), ['NOT_LEADER_OR_FOLLOWER', null])
    await cluster.reset()
    assert.deepEqual((await cluster.control.getFaults()).faults, [])
  })

  test('partition 0 can be named, and a fault of another partition hits nothing', async () => {
    const fault = await cluster.fault({ api: 'Produce', topic: 'orders', partition: 1, error: 'NOT_LEADER_OR_FOLLOWER' })
    const own = await cluster.fault({ api: 'Produce', topic: 'orders', partition: 0, delay_ms: 1 })
    await produce('both', 'orders')
    assert.deepEqual([await fault.hits(), await own.hits()], [0, 1])
    await cluster.reset()
  })

  test('a hold is reached and released', async () => {
    const hold = await cluster.hold('ZooKeeperWrite', { paths: '/brokers/topics/held' }, { count: 1 })
    const admin = client('admin').admin()
    await admin.connect()
    const created = admin.createTopics({ topics: [{ topic: 'held', numPartitions: 1 }] })
    assert.equal((await hold.reached()).held.length, 1)
    await hold.release()
    assert.equal(await created, true)
    await admin.disconnect()
    assert.equal(typeof await cluster.waitForLeader('held', 0), 'number')
  })

  test('a group becomes stable, and its session ends when the clock is advanced', async () => {
    const consumer = client('reader').consumer({ groupId: 'readers', sessionTimeout: 30000 })
    await consumer.connect()
    await consumer.subscribe({ topic: 'orders', fromBeginning: true })
    await consumer.run({ eachMessage: async () => {} })
    await cluster.waitForGroup('readers', 'Stable')
    assert.ok((await cluster.waitForRequests(1, { api: 'Fetch', client_id: 'reader' })).length >= 1)
    await consumer.disconnect()
    assert.ok((await cluster.advance(1000)).now_ms > 0)
  })

  test('a controller is found again', async () => {
    await cluster.control.moveController({ to: 2 })
    assert.equal(await cluster.waitForController(2), 2)
  })

  test('a test that fails says what its client requested, and the cluster is reset', async () => {
    const failing = cluster.test(async () => {
      await cluster.fault({ api: 'Metadata', client_id: 'sad', error: 'LEADER_NOT_AVAILABLE', topic: 'orders', first: 1 })
      await produce('sad', 'orders')
      throw new Error('no luck')
    })
    await assert.rejects(failing, error => {
      for (const text of [error.message, error.stack]) assert.match(text, /^(Error: )?no luck\n\n.*Produce v\d+ {2}sad {2}ok/s)
      return true
    })
    assert.deepEqual((await cluster.control.getFaults()).faults, [])
  })

  test('a fault may be any effect', async () => {
    const fault = await cluster.fault({ api: 'Produce', client_id: 'shop', unknown_tags: true, after: 1 })
    assert.equal((await cluster.control.getFault(fault.id)).effect.unknown_tags, true)
    await cluster.reset()
  })

  test('what the API refuses is one line', async () => {
    await assert.rejects(cluster.fault({ api: 'Produse', error: 'NOT_LEADER_OR_FOLLOWER' }), { name: 'ControlFailed', message: /Produse/ })
    await assert.rejects(cluster.waitForRequests(1, { client_id: 'nobody' }, 50), /not within 50 ms: fewer than 1/)
    await assert.rejects(connect('x:1', 'http://127.0.0.1:1').reset(), /cannot reach the control API/)
  })

  test('the rules are obeyed', async () => {
    const verdict = await cluster.verdict()
    assert.ok(verdict.isObeyed, JSON.stringify(verdict.details))
  })

  test('@platformatic/kafka produces', async () => {
    const { Producer, stringSerializers } = await import('@platformatic/kafka')
    const producer = new Producer({ clientId: 'platformatic', bootstrapBrokers: cluster.brokers, serializers: stringSerializers })
    await producer.send({ messages: [{ topic: 'slow', value: 'a record' }] })
    await producer.close()
    assert.equal((await cluster.requests({ api: 'Produce', client_id: 'platformatic' })).at(-1).error, null)
  })
})

test('why a cluster cannot start is one line', async () => {
  await assert.rejects(start({ topics: ['a b:1'] }), /a b/)
  await assert.rejects(start({ command: '/nothing/klamm' }), /cannot start klamm/)
})

test('a test that stops its cluster fails with its own error', async () => {
  const short = await start({ brokers: 1 })
  await assert.rejects(short.test(async () => {
    await short.stop()
    throw new Error('no luck')
  }), /no luck/)
})

test('require finds the same', () => {
  assert.equal(typeof createRequire(import.meta.url)('klamm').start, 'function')
})

test('brokers that do not stop in time are killed, which is an error', async () => {
  const short = await start({ brokers: 1 })
  await assert.rejects(short.stop(0), /did not stop within 0 ms/)
  await short.stop() // it has ended
})

test('a cluster ends with a test that is killed', async () => {
  const child = fork(new URL('child.mjs', import.meta.url))
  const [address] = await once(child, 'message')
  child.kill('SIGKILL')
  const [host, port] = address.split(':')
  for (const until = Date.now() + 30_000; ;) {
    const serves = await new Promise(resolve => {
      const socket = connectTo(port, host, () => { socket.destroy(); resolve(true) }).on('error', () => { resolve(false) })
    })
    if (!serves) return
    assert.ok(Date.now() < until, `the cluster serves at ${address}`)
  }
})

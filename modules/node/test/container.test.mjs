// A cluster in a container of the image that KLAMM_IMAGE names, which keeps a journal if it can; without it there is nothing to test.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import kafkajs from 'kafkajs'
import { start } from 'klamm'

const docker = process.env.KLAMM_DOCKER

test('a fault reaches a cluster in a container, whose journal is judged there', { skip: process.env.KLAMM_IMAGE === undefined }, async () => {
  const inside = await start({ image: process.env.KLAMM_IMAGE, docker, topics: ['orders:1:3'], journal: true })
  try {
    const fault = await inside.fault({ api: 'Produce', error: 'NOT_LEADER_OR_FOLLOWER', first: 1 })
    const producer = new kafkajs.Kafka({ brokers: inside.brokers, logLevel: kafkajs.logLevel.NOTHING }).producer()
    await producer.connect()
    await producer.send({ topic: 'orders', messages: [{ value: 'a record' }] })
    await producer.disconnect()
    assert.equal(await fault.hits(), 1)
    const verdict = await inside.verdict()
    assert.ok(verdict.isObeyed, JSON.stringify(verdict.details))
  } finally {
    await inside.stop()
  }
})

test('an image that does not exist is named', { skip: process.env.KLAMM_IMAGE === undefined }, async () => {
  await assert.rejects(start({ image: 'no-such-image', docker }), /no-such-image/)
})

// kafkajs's producer: numbered records until stdin ends, one line of JSON for each. Arguments: folder with node_modules, bootstrap, topic, partitions.
import { createRequire } from 'node:module'

const [modules, bootstrap, topic, partitions] = process.argv.slice(2)
const { Kafka, logLevel } = createRequire(modules + '/')('kafkajs')
const retry = { retries: 100, initialRetryTime: 50, maxRetryTime: 500 }
const kafka = new Kafka({ clientId: 'test', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, retry })
const producer = kafka.producer({ allowAutoTopicCreation: false, maxInFlightRequests: 1, retry })

let over = false
process.stdin.on('end', () => { over = true })
process.stdin.resume()
await producer.connect()
for (let number = 0; !over; number++) {
  try {
    const messages = [{ value: `${topic}:${number}`, partition: number % Number(partitions) }]
    const [{ baseOffset }] = await producer.send({ topic, acks: -1, timeout: 5000, messages })
    console.log(JSON.stringify({ number, offset: Number(baseOffset) }))
  } catch (error) {
    console.log(JSON.stringify({ number, error: error.type ?? error.name }))
  }
  await new Promise(resolve => setTimeout(resolve, 10))
}
await producer.disconnect()
process.exit(0)

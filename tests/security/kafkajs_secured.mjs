// kafkajs over TLS and SASL: produces numbered records, reads them as a group, prints their values. Arguments: folder with node_modules,
// settings as JSON (servers, topic, count, ca, mechanism, username, password, token).
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const [modules, text] = process.argv.slice(2)
const settings = JSON.parse(text)
const { Kafka, logLevel } = createRequire(modules + '/')('kafkajs')
const { mechanism, username, password, token } = settings
const sasl = token
  ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
  : mechanism ? { mechanism: mechanism.toLowerCase(), username, password } : undefined
const ssl = settings.ca ? { ca: [readFileSync(settings.ca, 'utf-8')], servername: 'localhost' } : false
const kafka = new Kafka({ clientId: 'test', brokers: settings.servers.split(','), ssl, sasl, logLevel: logLevel.NOTHING })

const producer = kafka.producer({ allowAutoTopicCreation: false })
await producer.connect()
const numbers = [...Array(settings.count).keys()]
await producer.send({ topic: settings.topic, acks: -1, messages: numbers.map(number => ({ value: `${number}`, partition: 0 })) })
await producer.disconnect()

const consumer = kafka.consumer({ groupId: 'kafkajs' })
await consumer.connect()
await consumer.subscribe({ topic: settings.topic, fromBeginning: true })
const values = []
await new Promise(resolve => {
  consumer.run({
    eachMessage: async ({ message }) => {
      values.push(message.value.toString())
      if (values.length === settings.count) resolve()
    }
  })
})
console.log(JSON.stringify(values))
process.exit(0)

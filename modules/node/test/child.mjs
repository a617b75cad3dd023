// Starts a cluster for the test that kills this process.
import { start } from 'klamm'

const cluster = await start({ brokers: 1 })
process.send(cluster.bootstrapServers)

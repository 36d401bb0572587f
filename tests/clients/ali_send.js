// Send keyed messages with npm `ali-ons`; exit 0 if every send succeeded.
// Arguments: names topic run [--count N] [--size N] [--tags a,b] [--inflight N]
'use strict';

const { parseArgs } = require('node:util');
const { Message, Producer } = require('ali-ons');

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    count: { type: 'string', default: '20' },
    size: { type: 'string', default: '0' },
    tags: { type: 'string', default: 'red' },
    inflight: { type: 'string', default: '1' },
  },
});
const [names, topic, run] = positionals;
const silent = { debug() {}, info() {}, warn() {}, error() {} };

async function main() {
  const producer = new Producer({
    nameSrv: names.split(';'),
    producerGroup: `${run}-senders`,
    httpclient: { request() { throw new Error('HTTP is not used'); } },
    logger: silent,
  });
  producer.on('error', error => console.log(`client: ${error.message}`));
  await producer.ready();
  const tags = values.tags.split(',');
  const count = Number(values.count);
  let next = 0;
  let failed = 0;

  async function sendSome() {
    while (next < count) {
      const number = next++;
      const key = `${run}-${number}`;
      const message = new Message(topic, tags[number % tags.length], key.padEnd(Number(values.size), '.'));
      message.keys = [ key ];
      try {
        await producer.send(message);
      } catch (error) {
        failed++;
        console.log(`message ${number}: ${error.message}`);
      }
    }
  }

  await Promise.all(Array.from({ length: Number(values.inflight) }, sendSome));
  await producer.close();
  console.log(`${count - failed} of ${count} sent`);
  process.exit(failed ? 1 : 0);
}

main().catch(error => { console.error(error); process.exit(3); });

// Send keyed messages with npm `ali-ons`; exit 0 if every send succeeded.
// Arguments: names topic run sync|steady [--count N] [--size N] [--tags a,b] [--inflight N] [--pause SECONDS]
// [--delay-seconds N] [--credentials USER:SECRET]
// "steady" sends one message after the other until the process is killed, each until it is acknowledged, and
// prints "acked KEY MILLISECONDS" or "failed KEY MILLISECONDS REASON" for each attempt.
'use strict';

const { parseArgs } = require('node:util');
const { setTimeout: sleep } = require('node:timers/promises');
const { Message, Producer } = require('ali-ons');

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    count: { type: 'string', default: '20' },
    size: { type: 'string', default: '0' },
    tags: { type: 'string', default: 'red' },
    pause: { type: 'string', default: '0' },
    inflight: { type: 'string', default: '1' },
    'delay-seconds': { type: 'string', default: '0' },
    credentials: { type: 'string', default: '' },
  },
});
const [names, topic, run, mode] = positionals;
const pauseAfterFailure = 100;
const [accessKey, secretKey] = values.credentials.split(':');
const silent = { debug() {}, info() {}, warn() {}, error() {} };

async function main() {
  const producer = new Producer({
    nameSrv: names.split(';'),
    accessKeyId: accessKey,
    accessKeySecret: secretKey,
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

  function make(number) {
    const key = `${run}-${number}`;
    const message = new Message(topic, tags[number % tags.length], key.padEnd(Number(values.size), '.'));
    message.keys = [ key ];
    const delay = Number(values['delay-seconds']);
    if (delay) {
      message.setStartDeliverTime(Date.now() + delay * 1000);
    }
    return message;
  }

  async function sendSteadily() {
    for (let number = 0; ; number++) {
      const message = make(number);
      for (let sent = false; !sent;) {
        try {
          await producer.send(message);
          sent = true;
          console.log(`acked ${message.keys} ${Date.now()}`);
        } catch (error) {
          console.log(`failed ${message.keys} ${Date.now()} ${error.message.split('\n')[0]}`);
          await sleep(pauseAfterFailure);
        }
      }
      await sleep(1000 * Number(values.pause));
    }
  }

  async function sendSome() {
    while (next < count) {
      const number = next++;
      const message = make(number);
      try {
        await producer.send(message);
      } catch (error) {
        failed++;
        console.log(`message ${number}: ${error.message}`);
      }
    }
  }

  if (mode === 'steady') await sendSteadily();
  await Promise.all(Array.from({ length: Number(values.inflight) }, sendSome));
  await producer.close();
  console.log(`${count - failed} of ${count} sent`);
  process.exit(failed ? 1 : 0);
}

main().catch(error => { console.error(error); process.exit(3); });

// Consume with npm `ali-ons`; exit 0 once so many keys of the run have come.
// Prints "ready" when it has started, then one key a line; "again KEY" for a key that came before.
// Arguments: names topic group run [--expect N] [--tags "a || b"] [--seconds N] [--fail-first N] [--broadcast]
// [--credentials USER:SECRET] [--steady]: the last one goes on until it is killed, and prints "took KEY MILLISECONDS QUEUE/OFFSET" for each message.
'use strict';

const { parseArgs } = require('node:util');
const { Consumer } = require('ali-ons');

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    expect: { type: 'string', default: '20' },
    tags: { type: 'string', default: '*' },
    seconds: { type: 'string', default: '60' },
    'fail-first': { type: 'string', default: '0' },
    broadcast: { type: 'boolean', default: false },
    steady: { type: 'boolean', default: false },
    credentials: { type: 'string', default: '' },
  },
});
const [names, topic, group, run] = positionals;
const [accessKey, secretKey] = values.credentials.split(':');
const silent = { debug() {}, info() {}, warn() {}, error() {} };
const expected = Number(values.expect);

async function main() {
  const keys = new Set();
  let toFail = Number(values['fail-first']);
  let enough;
  const done = new Promise(resolve => { enough = resolve; });
  const consumer = new Consumer({
    nameSrv: names.split(';'),
    accessKeyId: accessKey,
    accessKeySecret: secretKey,
    consumerGroup: group,
    isBroadcast: values.broadcast,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    httpclient: { request() { throw new Error('HTTP is not used'); } },
    logger: silent,
  });
  // A fresh group makes one error event for each queue without an offset; that is this client's way.
  consumer.on('error', error => console.log(`client: ${error.message.slice(0, 120)}`));
  consumer.subscribe(topic, values.tags, async message => {
    if (values.steady) {
      console.log(`took ${message.keys} ${Date.now()} ${message.queueId}/${message.queueOffset}`);
      return;
    }
    if (toFail) {
      toFail--;
      console.log(`failing ${message.keys}`);
      return Consumer.ACTION_RETRY;
    }
    if (message.keys.startsWith(`${run}-`)) {
      console.log(keys.has(message.keys) ? `again ${message.keys}` : message.keys);
      keys.add(message.keys);
    }
    if (keys.size >= expected) enough(true);
  });
  await consumer.ready();
  console.log('ready');
  if (values.steady) return;
  const met = await Promise.race([
    done,
    new Promise(resolve => { setTimeout(resolve, Number(values.seconds) * 1000, false); }),
  ]);
  await new Promise(resolve => { setTimeout(resolve, 300); });
  await consumer.close();
  console.log(`${keys.size} of ${expected} keys`);
  process.exit(met && keys.size === expected ? 0 : 2);
}

main().catch(error => { console.error(error); process.exit(3); });

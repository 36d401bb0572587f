// Do what lines of standard input ask for with the JavaScript client of RocketMQ 5.
// The words are those of tests/clients/driver.py.
'use strict';

const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');
const {
  ConsumeResult, FilterExpression, LitePushConsumerImpl, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const RESOLUTIONS = {
  commit: TransactionResolution.COMMIT,
  rollback: TransactionResolution.ROLLBACK,
  unknown: TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
};

const complain = (...words) => console.error(...words.map(String));
const logger = { debug() {}, info() {}, warn: complain, error: complain, close() {} };
const clients = new Map();
const received = [];

const tell = told => process.stdout.write(`${JSON.stringify(told)}\n`);

function shown(message) {
  received.push(message);
  return {
    number: received.length - 1,
    topic: message.topic,
    body: message.body.toString('base64'),
    tag: message.tag ?? null,
    keys: [...message.keys].sort(),
    properties: Object.fromEntries(message.properties),
    group: message.messageGroup ?? null,
    lite: message.liteTopic ?? null,
    id: message.messageId,
    attempt: message.deliveryAttempt ?? null,
    corrupted: message.corrupted,
  };
}

const checker = {
  async check(message) {
    tell({ event: 'check', ...shown(message) });
    return RESOLUTIONS[message.properties.get('check')];
  },
};

function listener(name) {
  const deliveries = new Map();
  return {
    async consume(message) {
      const count = (deliveries.get(message.messageId) ?? 0) + 1;
      deliveries.set(message.messageId, count);
      tell({ event: 'message', name, ...shown(message) });
      await sleep(Number(message.properties.get('hold') ?? 0));
      return count <= Number(message.properties.get('fail') ?? 0) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
}

function base(asked) {
  const sessionCredentials = asked.user ? { accessKey: asked.user, accessSecret: asked.secret } : undefined;
  return { endpoints: asked.endpoints, namespace: '', sslEnabled: asked.tls, logger, sessionCredentials };
}

function subscriptions(asked) {
  return new Map(asked.subscriptions.map(one => [
    one.topic,
    one.sql ? new FilterExpression(one.sql, FilterType.SQL) : new FilterExpression(one.tag ?? '*'),
  ]));
}

function messageOf(asked) {
  return {
    topic: asked.topic,
    body: Buffer.from(asked.body, 'base64'),
    tag: asked.tag,
    keys: asked.keys,
    properties: new Map(Object.entries(asked.properties ?? {})),
    messageGroup: asked.group,
    liteTopic: asked.lite,
    deliveryTimestamp: asked.at && new Date(asked.at),
  };
}

async function start(asked, client) {
  await client.startup();
  clients.set(asked.name, client);
  return {};
}

async function receiptOf(asked, message) {
  try {
    const receipt = await clients.get(asked.name).send(messageOf(message));
    return { id: receipt.messageId, recall: receipt.recallHandle || null };
  } catch (error) {
    return problem(error);
  }
}

const actions = {
  producer: asked => start(asked, new Producer({
    ...base(asked), topics: asked.topics, checker: asked.transactional ? checker : undefined,
  })),
  simple: asked => start(asked, new SimpleConsumer({
    ...base(asked),
    consumerGroup: asked.group,
    subscriptions: subscriptions(asked),
    awaitDuration: asked.wait_s * 1000,
  })),
  push: asked => start(asked, new PushConsumer({
    ...base(asked),
    consumerGroup: asked.group,
    subscriptions: subscriptions(asked),
    messageListener: listener(asked.name),
  })),
  lite: asked => start(asked, new LitePushConsumerImpl({
    ...base(asked),
    consumerGroup: asked.group,
    bindTopic: asked.topic,
    messageListener: listener(asked.name),
  })),
  async subscribe(asked) {
    await clients.get(asked.name).subscribeLite(asked.lite);
    return {};
  },
  async unsubscribe(asked) {
    await clients.get(asked.name).unsubscribeLite(asked.lite);
    return {};
  },
  async send(asked) {
    if (asked.at_once) {
      return { receipts: await Promise.all(asked.messages.map(message => receiptOf(asked, message))) };
    }
    const receipts = [];
    for (const message of asked.messages) {
      receipts.push(await receiptOf(asked, message));
    }
    return { receipts };
  },
  async transact(asked) {
    const producer = clients.get(asked.name);
    const transaction = producer.beginTransaction();
    const receipt = await producer.send(messageOf(asked.message), transaction);
    if (asked.end !== 'none') {
      await transaction[asked.end]();
    }
    return { id: receipt.messageId };
  },
  async recall(asked) {
    const receipt = await clients.get(asked.name).recallMessage(asked.topic, asked.handle);
    return { id: receipt.messageId };
  },
  async receive(asked) {
    const messages = await clients.get(asked.name).receive(asked.most, asked.invisible_s * 1000);
    return { messages: messages.map(shown) };
  },
  async ack(asked) {
    await clients.get(asked.name).ack(received[asked.number]);
    return {};
  },
  async change(asked) {
    await clients.get(asked.name).changeInvisibleDuration(received[asked.number], asked.invisible_s * 1000);
    return {};
  },
  async close(asked) {
    await clients.get(asked.name).shutdown();
    return {};
  },
};

function problem(error) {
  const cause = error.cause ? ` (${error.cause.message})` : '';
  return { error: `${error.name}: ${error.message}${cause}`, code: typeof error.code === 'number' ? error.code : null };
}

async function answer(asked) {
  let told;
  try {
    told = await actions[asked.do](asked);
  } catch (error) {
    told = problem(error);
  }
  tell({ answer: asked.answer, ...told });
}

process.on('unhandledRejection', error => complain('unhandled', error));
const lines = readline.createInterface({ input: process.stdin });
lines.on('line', line => answer(JSON.parse(line)));
lines.on('close', () => process.exit(0));

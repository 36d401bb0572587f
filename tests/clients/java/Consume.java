import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consume with the Java client; exit 0 once so many keys of the run have come.
 * Prints "ready" when it has started, then one key a line; "again KEY" for a key that came before.
 * Arguments: names topic group run [--expect N] [--tags "a || b"] [--seconds N] [--fail-first N]
 * [--broadcast] [--orderly] [--pull] [--steady] [--reply] [--sql "n > 3"]
 * "--pull" uses the lite pull consumer. "--steady" goes on until the process is killed, and prints
 * "took KEY MILLISECONDS QUEUE/OFFSET" for each message.
 */
public final class Consume {
    private static final long POLL_MILLIS = 500;
    /** What comes too much would come in this time. */
    private static final long AFTERWARDS_MILLIS = 300;

    private final Options options;
    private final Set<String> keys = new HashSet<>();
    private final CountDownLatch enough = new CountDownLatch(1);
    private int toFail;
    private DefaultMQProducer replier;

    private Consume(Options options) {
        this.options = options;
        toFail = options.number("fail-first", 0);
    }

    public static void main(String[] arguments) throws Exception {
        Options.useHomeOfEnvironment();
        Options options = new Options(arguments, "broadcast", "orderly", "pull", "steady", "reply");
        Consume consume = new Consume(options);
        int expected = options.number("expect", 20);
        if (options.flag("pull")) {
            consume.pull();
        } else {
            consume.push();
        }
        Options.say(consume.keys.size() + " of " + expected + " keys");
        System.exit(consume.keys.size() == expected ? 0 : 2);
    }

    private void push() throws Exception {
        if (options.flag("reply")) {
            replier = new DefaultMQProducer(options.word(2) + "-repliers");
            replier.setNamesrvAddr(options.word(0));
            replier.start();
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.word(2));
        consumer.setNamesrvAddr(options.word(0));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (options.flag("broadcast")) {
            // The type moved to another package in version 5, so it is not named here.
            var model = consumer.getMessageModel();
            consumer.setMessageModel(model.valueOf("BROADCASTING"));
        }
        String condition = options.text("sql", "");
        if (condition.isEmpty()) {
            consumer.subscribe(options.word(1), options.text("tags", "*"));
        } else {
            consumer.subscribe(options.word(1), MessageSelector.bySql(condition));
        }
        if (options.flag("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                takeAll(messages)
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                takeAll(messages)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        Options.say("ready");
        if (options.flag("steady")) {
            new CountDownLatch(1).await();
        }
        enough.await(options.millis("seconds", 60), TimeUnit.MILLISECONDS);
        Thread.sleep(AFTERWARDS_MILLIS);
        consumer.shutdown();
    }

    private void pull() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.word(2));
        consumer.setNamesrvAddr(options.word(0));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.word(1), options.text("tags", "*"));
        consumer.start();
        Options.say("ready");
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(options.millis("seconds", 60));
        while (enough.getCount() > 0 && System.nanoTime() < deadline) {
            takeAll(consumer.poll(POLL_MILLIS));
        }
        takeAll(consumer.poll(AFTERWARDS_MILLIS));
        consumer.shutdown();
    }

    /** Whether all of them count as consumed. The default is one message a call. */
    private synchronized boolean takeAll(List<MessageExt> messages) {
        boolean taken = true;
        for (MessageExt message : messages) {
            taken &= take(message);
        }
        return taken;
    }

    private void reply(MessageExt message) {
        try {
            byte[] body = ("reply to " + message.getKeys()).getBytes(StandardCharsets.UTF_8);
            replier.send(MessageUtil.createReplyMessage(message, body));
        } catch (Exception error) {
            Options.say("no reply to " + message.getKeys() + ": " + error);
        }
    }

    private boolean take(MessageExt message) {
        String key = message.getKeys();
        if (options.flag("steady")) {
            Options.say("took " + key + " " + System.currentTimeMillis() + " "
                + message.getQueueId() + "/" + message.getQueueOffset());
            return true;
        }
        if (replier != null) {
            reply(message);
        }
        if (toFail > 0) {
            toFail--;
            Options.say("failing " + key);
            return false;
        }
        if (key.startsWith(options.word(3) + "-")) {
            Options.say(keys.add(key) ? key : "again " + key);
        }
        if (keys.size() >= options.number("expect", 20)) {
            enough.countDown();
        }
        return true;
    }
}

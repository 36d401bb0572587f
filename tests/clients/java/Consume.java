import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consume with the push consumer of the Java client; exit 0 once so many keys of the run have come.
 * Prints "ready" when it has started, then one key a line; "again KEY" for a key that came before.
 * Arguments: names topic group run [--expect N] [--seconds N] [--steady]
 * [--credentials USER:SECRET].
 * "--steady" goes on until the process is killed, and prints "took KEY MILLISECONDS QUEUE/OFFSET" for each message.
 */
public final class Consume {
    /** What comes too much would come in this time. */
    private static final long AFTERWARDS_MILLIS = 300;

    private final Options options;
    private final Set<String> keys = new HashSet<>();
    private final CountDownLatch enough = new CountDownLatch(1);

    private Consume(Options options) {
        this.options = options;
    }

    public static void main(String[] arguments) throws Exception {
        Options.useHomeOfEnvironment();
        Options options = new Options(arguments, "steady");
        Consume consume = new Consume(options);
        int expected = options.number("expect", 20);
        consume.push();
        Options.say(consume.keys.size() + " of " + expected + " keys");
        System.exit(consume.keys.size() == expected ? 0 : 2);
    }

    private void push() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            options.word(2), options.signing(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(options.word(0));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(options.word(1), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            takeAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Options.say("ready");
        if (options.flag("steady")) {
            new CountDownLatch(1).await();
        }
        enough.await(options.millis("seconds", 60), TimeUnit.MILLISECONDS);
        Thread.sleep(AFTERWARDS_MILLIS);
        consumer.shutdown();
    }

    private synchronized void takeAll(List<MessageExt> messages) {
        messages.forEach(this::take);
    }

    private void take(MessageExt message) {
        String key = message.getKeys();
        if (options.flag("steady")) {
            Options.say("took " + key + " " + System.currentTimeMillis() + " "
                + message.getQueueId() + "/" + message.getQueueOffset());
            return;
        }
        if (key.startsWith(options.word(3) + "-")) {
            Options.say(keys.add(key) ? key : "again " + key);
        }
        if (keys.size() >= options.number("expect", 20)) {
            enough.countDown();
        }
    }
}

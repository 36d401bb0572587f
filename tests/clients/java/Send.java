import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Send keyed messages with the Java client, one by one; exit 0 if every send succeeded.
 * Arguments: names topic run sync|steady [--count N] [--size N] [--pause SECONDS] [--tries N]
 * [--credentials USER:SECRET].
 * "steady" sends one message after the other until the process is killed, each until it is acknowledged, and prints
 * "acked KEY MILLISECONDS" or "failed KEY MILLISECONDS REASON" for each attempt.
 */
public final class Send {
    private static final long PAUSE_AFTER_FAILURE_MILLIS = 100;
    /** The first send has 3 s by default to load classes, ask for the route and connect: too short for a busy machine. */
    private static final int FIRST_SEND_MILLIS = 20_000;

    private final Options options;
    private final DefaultMQProducer producer;

    private Send(Options options) {
        this.options = options;
        producer = new DefaultMQProducer(options.word(2) + "-senders", options.signing());
        producer.setNamesrvAddr(options.word(0));
    }

    public static void main(String[] arguments) throws Exception {
        Options.useHomeOfEnvironment();
        Options options = new Options(arguments);
        int count = options.number("count", 20);
        int failed = new Send(options).run(options.word(3).equals("steady"), count);
        Options.say((count - failed) + " of " + count + " sent");
        System.exit(failed == 0 ? 0 : 1);
    }

    private int run(boolean steadily, int count) throws Exception {
        if (!steadily && options.number("tries", 1) == 1) {
            producer.setSendMsgTimeout(FIRST_SEND_MILLIS);
        }
        producer.start();
        try {
            if (steadily) {
                sendSteadily();
            }
            return oneByOne(count);
        } finally {
            producer.shutdown();
        }
    }

    private Message make(int number) {
        String key = options.word(2) + "-" + number;
        String body = key + ".".repeat(Math.max(0, options.number("size", 0) - key.length()));
        return new Message(options.word(1), "red", key, body.getBytes(StandardCharsets.UTF_8));
    }

    private void send(Message message) throws Exception {
        SendResult result = producer.send(message);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("the broker answered " + result.getSendStatus());
        }
    }

    /** Send each message, again after a failure; how many failed for good. */
    private int oneByOne(int count) throws InterruptedException {
        int failed = 0;
        int tries = options.number("tries", 1);
        for (int number = 0; number < count; number++) {
            boolean sent = false;
            for (int attempt = 0; attempt < tries && !sent; attempt++) {
                try {
                    send(make(number));
                    sent = true;
                } catch (Exception error) {
                    Options.say("message " + number + ", attempt " + attempt + ": " + reason(error));
                    Thread.sleep(1000);
                }
            }
            failed += sent ? 0 : 1;
            Thread.sleep(options.millis("pause", 0));
        }
        return failed;
    }

    private void sendSteadily() throws InterruptedException {
        for (int number = 0; ; number++) {
            Message message = make(number);
            boolean sent = false;
            while (!sent) {
                try {
                    send(message);
                    sent = true;
                    Options.say("acked " + message.getKeys() + " " + System.currentTimeMillis());
                } catch (Exception error) {
                    long now = System.currentTimeMillis();
                    Options.say("failed " + message.getKeys() + " " + now + " " + reason(error));
                    Thread.sleep(PAUSE_AFTER_FAILURE_MILLIS);
                }
            }
            Thread.sleep(options.millis("pause", 0));
        }
    }

    private static String reason(Throwable error) {
        return error.toString().lines().findFirst().orElse("");
    }
}

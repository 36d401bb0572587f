import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Send keyed messages with the Java client; exit 0 if every send succeeded.
 * Arguments: names topic run sync|async|oneway|orderly|batch|steady
 * [--count N] [--size N] [--tags a,b] [--pause SECONDS] [--tries N].
 * "steady" sends one message after the other until the process is killed, each until it is acknowledged, and prints
 * "acked KEY MILLISECONDS" or "failed KEY MILLISECONDS REASON" for each attempt.
 */
public final class Send {
    private static final long ASYNC_SECONDS = 30;
    private static final long PAUSE_AFTER_FAILURE_MILLIS = 100;
    /** The first send has 3 s by default to load classes, ask for the route and connect: too short for a busy machine. */
    private static final int FIRST_SEND_MILLIS = 20_000;

    private final Options options;
    private final DefaultMQProducer producer;

    private interface Attempt {
        void send(Message message, int number) throws Exception;
    }

    private Send(Options options) {
        this.options = options;
        producer = new DefaultMQProducer(options.word(2) + "-senders");
        producer.setNamesrvAddr(options.word(0));
    }

    public static void main(String[] arguments) throws Exception {
        Options.useHomeOfEnvironment();
        Options options = new Options(arguments);
        int count = options.number("count", 20);
        int failed = new Send(options).run(options.word(3), count);
        Options.say((count - failed) + " of " + count + " sent");
        System.exit(failed == 0 ? 0 : 1);
    }

    private int run(String mode, int count) throws Exception {
        if (!mode.equals("steady") && options.number("tries", 1) == 1) {
            producer.setSendMsgTimeout(FIRST_SEND_MILLIS);
        }
        producer.start();
        try {
            if (mode.equals("steady")) {
                sendSteadily();
            }
            List<Message> messages = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                messages.add(make(number));
            }
            return switch (mode) {
                case "sync" -> oneByOne(messages, (message, number) -> check(producer.send(message)));
                case "oneway" -> oneByOne(messages, (message, number) -> producer.sendOneway(message));
                case "orderly" -> oneByOne(messages, (message, number) -> check(producer.send(
                    message, (queues, one, chosen) -> queues.get((Integer) chosen % 2), number)));
                case "async" -> atOnce(messages);
                case "batch" -> {
                    check(producer.send(messages));
                    yield 0;
                }
                default -> throw new IllegalArgumentException("no mode is called " + mode);
            };
        } finally {
            producer.shutdown();
        }
    }

    private Message make(int number) {
        String key = options.word(2) + "-" + number;
        String[] tags = options.text("tags", "red").split(",");
        String body = key + ".".repeat(Math.max(0, options.number("size", 0) - key.length()));
        return new Message(
            options.word(1), tags[number % tags.length], key, body.getBytes(StandardCharsets.UTF_8));
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("the broker answered " + result.getSendStatus());
        }
    }

    /** Send each message, again after a failure; how many failed for good. */
    private int oneByOne(List<Message> messages, Attempt attempt) throws InterruptedException {
        int failed = 0;
        int tries = options.number("tries", 1);
        for (int number = 0; number < messages.size(); number++) {
            boolean sent = false;
            for (int count = 0; count < tries && !sent; count++) {
                try {
                    attempt.send(messages.get(number), number);
                    sent = true;
                } catch (Exception error) {
                    Options.say("message " + number + ", attempt " + count + ": " + reason(error));
                    Thread.sleep(1000);
                }
            }
            failed += sent ? 0 : 1;
            Thread.sleep(options.millis("pause", 0));
        }
        return failed;
    }

    private int atOnce(List<Message> messages) throws Exception {
        CountDownLatch ended = new CountDownLatch(messages.size());
        AtomicInteger sent = new AtomicInteger();
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() == SendStatus.SEND_OK) {
                        sent.incrementAndGet();
                    } else {
                        Options.say("the broker answered " + result.getSendStatus());
                    }
                    ended.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    Options.say(reason(error));
                    ended.countDown();
                }
            });
        }
        ended.await(ASYNC_SECONDS, TimeUnit.SECONDS);
        return messages.size() - sent.get();
    }

    private void sendSteadily() throws InterruptedException {
        for (int number = 0; ; number++) {
            Message message = make(number);
            boolean sent = false;
            while (!sent) {
                try {
                    check(producer.send(message));
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

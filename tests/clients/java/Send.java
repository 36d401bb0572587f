import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Send keyed messages with the Java client; exit 0 if every send succeeded.
 * Arguments: names topic run sync|async|oneway|orderly|batch|transaction|recall|ask|steady
 * [--count N] [--size N] [--tags a,b] [--pause SECONDS] [--tries N] [--delay-level N].
 * "transaction" commits the first of four messages and rolls back the second; of the others it says so when the
 * broker asks. "recall" takes back every second message. "ask" waits for the reply to each.
 * "steady" sends one message after the other until the process is killed, each until it is acknowledged, and prints
 * "acked KEY MILLISECONDS" or "failed KEY MILLISECONDS REASON" for each attempt.
 */
public final class Send {
    private static final long ASYNC_SECONDS = 30;
    private static final long PAUSE_AFTER_FAILURE_MILLIS = 100;
    /** The first send has 3 s by default to load classes, ask for the route and connect: too short for a busy machine. */
    private static final int FIRST_SEND_MILLIS = 20_000;

    /** A broker asks after six seconds, and once it has heard of the producer. */
    private static final long CHECK_SECONDS = 60;
    private static final int HEARTBEAT_MILLIS = 2_000;

    private final Options options;
    private final DefaultMQProducer producer;
    private final Asked asked = new Asked();

    private interface Attempt {
        void send(Message message, int number) throws Exception;
    }

    private Send(Options options) {
        this.options = options;
        String group = options.word(2) + "-senders";
        producer = isTransactional() ? new TransactionMQProducer(group) : new DefaultMQProducer(group);
        producer.setNamesrvAddr(options.word(0));
    }

    private boolean isTransactional() {
        return options.word(3).equals("transaction");
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
        if (producer instanceof TransactionMQProducer transactional) {
            transactional.setTransactionListener(asked);
            transactional.setHeartbeatBrokerInterval(HEARTBEAT_MILLIS);
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
                case "transaction" -> transact(messages);
                case "recall" -> recall(messages);
                case "ask" -> ask(messages);
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
        Message message = new Message(
            options.word(1), tags[number % tags.length], key, body.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("n", Integer.toString(number));
        int level = options.number("delay-level", 0);
        if (level > 0) {
            message.setDelayTimeLevel(level);
        }
        return message;
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

    /** Ends two messages of four at once, and the others when the broker asks; how many it did not ask about. */
    private int transact(List<Message> messages) throws Exception {
        for (int number = 0; number < messages.size(); number++) {
            check(producer.sendMessageInTransaction(messages.get(number), number));
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(CHECK_SECONDS);
        int open = messages.size() / 2;
        while (asked.keys.size() < open && System.nanoTime() < deadline) {
            Thread.sleep(PAUSE_AFTER_FAILURE_MILLIS);
        }
        Thread.sleep(1000); // the last answer is on its way
        return open - asked.keys.size();
    }

    /** How the transaction of a message ends is the rest of its number by four. */
    private static final class Asked implements TransactionListener {
        final Set<String> keys = ConcurrentHashMap.newKeySet();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object number) {
            return switch ((Integer) number % 4) {
                case 0 -> LocalTransactionState.COMMIT_MESSAGE;
                case 1 -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String key = message.getKeys();
            int rest = Integer.parseInt(key.substring(key.lastIndexOf('-') + 1)) % 4;
            if (rest < 2) {
                throw new IllegalStateException("asked about " + key + ", which has ended");
            }
            keys.add(key);
            return rest == 2 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    /** Versions before 5.3 have neither times nor recall, so they are not named here. */
    private int recall(List<Message> messages) throws Exception {
        int failed = 0;
        for (int number = 0; number < messages.size(); number++) {
            Message message = messages.get(number);
            Message.class.getMethod("setDelayTimeMs", long.class).invoke(message, 5000L);
            SendResult result = producer.send(message);
            check(result);
            if (number % 2 == 1) {
                Object handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
                Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                    .invoke(producer, options.word(1), handle);
                failed += result.getMsgId().equals(id) ? 0 : 1;
            }
        }
        return failed;
    }

    /**
     * How many got no reply. Both versions call back at the acknowledgement, too, without a message; and the plain
     * request of 5.3 gives up then.
     */
    private int ask(List<Message> messages) throws Exception {
        Set<String> replied = ConcurrentHashMap.newKeySet();
        for (Message message : messages) {
            producer.request(message, new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    if (reply != null) {
                        replied.add(new String(reply.getBody(), StandardCharsets.UTF_8));
                    }
                }

                @Override
                public void onException(Throwable error) {
                    Options.say(reason(error));
                }
            }, TimeUnit.SECONDS.toMillis(ASYNC_SECONDS));
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(ASYNC_SECONDS);
        while (replied.size() < messages.size() && System.nanoTime() < deadline) {
            Thread.sleep(PAUSE_AFTER_FAILURE_MILLIS);
        }
        int missing = 0;
        for (Message message : messages) {
            missing += replied.contains("reply to " + message.getKeys()) ? 0 : 1;
        }
        return missing;
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

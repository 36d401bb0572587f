import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Predicate;
import java.util.function.ToLongFunction;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A steady load for each feature: it sends, and consumes, until it is stopped, and then until all has come. */
final class Loads {
    static final long PAUSE_MILLIS = 50;

    private static final int ACCOUNTS = 4;
    private static final int BATCH = 5;
    private static final int[] LEVEL_MILLIS = {0, 1000, 5000, 10_000};
    /** Long enough that two listeners of one queue would meet. */
    private static final long WORK_MILLIS = 10;
    private static final long SHARED_MILLIS = 90_000;
    private static final long CONSUMER_LIVES_MILLIS = 3000;
    private static final int LAST_LOOK_MILLIS = 5000;

    private Loads() {
    }

    static void sends(Place place, Journal journal) throws Exception {
        reading(place, place.consumer(), journal, "reader", message -> true);
        send(place, journal, message -> 0);
        Losses.drain(journal);
    }

    static void batches(Place place, Journal journal) throws Exception {
        reading(place, place.consumer(), journal, "reader", message -> true);
        DefaultMQProducer producer = place.producer();
        for (int number = 0; !journal.isStopped(); number += BATCH) {
            List<Message> batch = new ArrayList<>();
            List<String> keys = new ArrayList<>();
            for (int one = number; one < number + BATCH; one++) {
                batch.add(place.message(one));
                keys.add(place.key(one));
            }
            journal.insist(keys, () -> Place.acknowledged(producer.send(batch)));
            Thread.sleep(BATCH * PAUSE_MILLIS);
        }
        Losses.drain(journal);
    }

    /** Two consumers share four queues, each of which belongs to one account. */
    static void orders(Place place, Journal journal) throws Exception {
        journal.reader("all");
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String reader : List.of("first", "second")) {
            DefaultMQPushConsumer consumer = place.consumer();
            consumers.add(consumer);
            consumer.subscribe(place.topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                take(journal, messages, reader, message -> rest(WORK_MILLIS), message -> 0);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            place.start(consumer);
        }
        awaitShares(place, consumers);
        DefaultMQProducer producer = place.producer();
        for (int number = 0; !journal.isStopped(); number++) {
            Message message = place.message(number);
            int account = number % ACCOUNTS;
            journal.insist(message.getKeys(), () -> Place.acknowledged(
                producer.send(message, (queues, one, chosen) -> queues.get((Integer) chosen), account)));
            Thread.sleep(PAUSE_MILLIS);
        }
        Losses.drain(journal);
    }

    /** A consumer that has messages of a queue gives it up 20 s later, so queues are shared out before. */
    private static void awaitShares(Place place, List<DefaultMQPushConsumer> consumers) throws InterruptedException {
        long deadline = System.currentTimeMillis() + SHARED_MILLIS;
        while (!consumers.stream().allMatch(one -> share(place, one) == ACCOUNTS / consumers.size())) {
            Failed.unless(System.currentTimeMillis() < deadline, "the queues were not shared out");
            Thread.sleep(PAUSE_MILLIS);
        }
    }

    private static long share(Place place, DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(place.topic)).count();
    }

    /** Levels 1 to 3, and none. */
    static void delays(Place place, Journal journal) throws Exception {
        reading(place, place.consumer(), journal, "reader", message -> true);
        send(place, journal, message -> {
            int level = number(message) % LEVEL_MILLIS.length;
            message.setDelayTimeLevel(level);
            return LEVEL_MILLIS[level];
        });
        Losses.drain(journal);
    }

    /** As `Transactions`: of five messages two are rolled back; three of the five end only when the broker asks. */
    static void transactions(Place place, Journal journal) throws Exception {
        reading(place, place.consumer(), journal, "reader", message -> true, MessageExt::getPreparedTransactionOffset);
        Transactions kinds = new Transactions();
        TransactionMQProducer producer = place.prepared(new TransactionMQProducer(place.topic + "-senders"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return visible(message, kinds.executeLocalTransaction(message, argument));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return visible(message, kinds.checkLocalTransaction(message));
            }

            private LocalTransactionState visible(Message message, LocalTransactionState state) {
                if (state == LocalTransactionState.COMMIT_MESSAGE) {
                    journal.from(message.getKeys(), System.currentTimeMillis());
                }
                return state;
            }
        });
        place.started(producer);
        for (int number = 0; !journal.isStopped(); number++) {
            Message message = place.message(number);
            if (number % 5 == 1 || number % 5 == 3) {
                journal.never(message.getKeys());
            }
            journal.insist(message.getKeys(), () -> Place.acknowledged(producer.sendMessageInTransaction(message, null)));
            Thread.sleep(PAUSE_MILLIS);
        }
        Losses.drain(journal);
    }

    /** Of four messages one fails once, and one always: it becomes a dead letter. */
    static void retries(Place place, Journal journal) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.setMaxReconsumeTimes(2);
        Set<String> failedOnce = ConcurrentHashMap.newKeySet();
        reading(place, consumer, journal, "reader", message -> switch (number(message) % 4) {
            case 1 -> !failedOnce.add(message.getKeys());
            case 3 -> false;
            default -> true;
        }, MessageExt::getReconsumeTimes);
        String graveyard = "%DLQ%" + place.group();
        place.makeTopic(graveyard); // which operators make readable
        DefaultLitePullConsumer undertaker = place.prepared(new DefaultLitePullConsumer(place.topic + "-undertakers"));
        undertaker.subscribe(graveyard, "*");
        undertaker.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        undertaker.start();
        AtomicBoolean ended = new AtomicBoolean(); // the client swallows interrupts
        Thread burying = new Thread(() -> {
            while (!ended.get()) {
                undertaker.poll(200).forEach(journal::buried);
            }
        });
        burying.start();
        try {
            send(place, journal, message -> 0);
            Losses.drain(journal);
        } finally {
            ended.set(true);
            burying.join();
            undertaker.shutdown();
        }
    }

    static void broadcasts(Place place, Journal journal) throws Exception {
        for (String reader : List.of("first", "second")) {
            DefaultMQPushConsumer consumer = place.consumer();
            // The type moved to another package in version 5, so it is not named here.
            var model = consumer.getMessageModel();
            consumer.setMessageModel(model.valueOf("BROADCASTING"));
            reading(place, consumer, journal, reader, message -> true);
        }
        send(place, journal, message -> 0);
        Losses.drain(journal);
    }

    /** A consumer ends every few seconds, and another one of its group takes its place; the last gets nothing. */
    static void restarts(Place place, Journal journal) throws Exception {
        journal.reader("all");
        Thread replacing = new Thread(() -> {
            try {
                for (int number = 0; !journal.isStopped(); number++) {
                    DefaultMQPushConsumer consumer = ending(place, journal, "reader-" + number);
                    rest(CONSUMER_LIVES_MILLIS);
                    consumer.shutdown();
                }
            } catch (Exception error) {
                journal.wrong("a consumer did not start: " + error);
            }
        });
        replacing.start();
        send(place, journal, message -> 0);
        replacing.join();
        DefaultMQPushConsumer consumer = ending(place, journal, "last-but-one");
        Losses.drain(journal);
        consumer.shutdown();
        ending(place, journal, "last");
        rest(LAST_LOOK_MILLIS);
    }

    /** Offsets are committed, each acknowledged, and read: none may go back. The message's number is the offset. */
    static void offsets(Place place, Journal journal) throws Exception {
        journal.reader("all");
        DefaultMQPullConsumer consumer = place.prepared(new DefaultMQPullConsumer(place.group()));
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(place.topic));
        String broker = place.brokers().get(0);
        long[] acknowledged = new long[queues.size()];
        for (int number = 1; !journal.isStopped(); number++) {
            int at = number % queues.size();
            long offset = number;
            boolean done = journal.insist(place.key(number), () -> {
                place.admin.updateConsumeOffset(broker, place.group(), queues.get(at), offset);
                return null;
            });
            if (done) {
                acknowledged[at] = offset;
            }
            MessageQueue queue = queues.get(at);
            long began = Journal.micros();
            long found = look(journal, consumer, queue, acknowledged[at]);
            if (found > 0) {
                journal.took(place.key((int) found), queue.getQueueId() + "/" + found, "all",
                    System.currentTimeMillis(), began, true, 0);
            }
            Thread.sleep(PAUSE_MILLIS);
        }
        for (int at = 0; at < queues.size(); at++) {
            look(journal, consumer, queues.get(at), acknowledged[at]);
        }
        consumer.shutdown();
    }

    /** Read an offset, until a broker answers. */
    private static long look(
            Journal journal, DefaultMQPullConsumer consumer, MessageQueue queue, long least) throws Exception {
        long found = consumer.fetchConsumeOffset(queue, true);
        while (found == -2) { // what the client says when it cannot know
            Thread.sleep(PAUSE_MILLIS);
            found = consumer.fetchConsumeOffset(queue, true);
        }
        if (found < least) {
            journal.wrong(queue + " stood at " + found + " after " + least + " was acknowledged");
        }
        return found;
    }

    /** A consumer that commits what it has done before it ends. */
    private static DefaultMQPushConsumer ending(Place place, Journal journal, String reader) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.setAwaitTerminationMillisWhenShutdown(CONSUMER_LIVES_MILLIS);
        // The default. Who takes a group for one that has never consumed skips messages then.
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe(place.topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            take(journal, messages, reader, message -> true, message -> 0);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        place.start(consumer);
        return consumer;
    }

    interface Prepared {
        /** Prepare a message, and say in how many milliseconds it is due. */
        long millis(Message message);
    }

    /** Send one after the other until the load is stopped. */
    static void send(Place place, Journal journal, Prepared prepared) throws Exception {
        DefaultMQProducer producer = place.producer();
        for (int number = 0; !journal.isStopped(); number++) {
            Message message = place.message(number);
            long millis = prepared.millis(message);
            journal.insist(message.getKeys(), () -> {
                if (millis > 0) {
                    journal.from(message.getKeys(), System.currentTimeMillis() + millis);
                }
                return Place.acknowledged(producer.send(message));
            });
            Thread.sleep(PAUSE_MILLIS);
        }
    }

    static void reading(
            Place place, DefaultMQPushConsumer consumer, Journal journal, String reader, Predicate<MessageExt> verdict)
            throws Exception {
        reading(place, consumer, journal, reader, verdict, message -> 0);
    }

    /** Start a push consumer that must get everything. */
    private static void reading(
            Place place, DefaultMQPushConsumer consumer, Journal journal, String reader, Predicate<MessageExt> verdict,
            ToLongFunction<MessageExt> copy) throws Exception {
        journal.reader(reader);
        consumer.subscribe(place.topic, "*");
        listen(place, consumer, journal, reader, verdict, copy);
    }

    /** Start a push consumer that has subscribed. */
    static void listen(
            Place place, DefaultMQPushConsumer consumer, Journal journal, String reader, Predicate<MessageExt> verdict,
            ToLongFunction<MessageExt> copy) throws Exception {
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1); // a second
            return take(journal, messages, reader, verdict, copy)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        place.start(consumer);
    }

    /** The default is one message a call. */
    private static boolean take(
            Journal journal, List<MessageExt> messages, String reader, Predicate<MessageExt> verdict,
            ToLongFunction<MessageExt> copy) {
        boolean all = true;
        for (MessageExt message : messages) {
            long at = System.currentTimeMillis();
            long began = Journal.micros();
            boolean succeeded = verdict.test(message);
            journal.took(message, reader, at, began, succeeded, copy.applyAsLong(message));
            all &= succeeded;
        }
        return all;
    }

    private static int number(Message message) {
        return Integer.parseInt(message.getUserProperty("n"));
    }

    /** Sleep; false if it was interrupted. */
    private static boolean rest(long millis) {
        try {
            Thread.sleep(millis);
            return true;
        } catch (InterruptedException error) {
            return false;
        }
    }
}

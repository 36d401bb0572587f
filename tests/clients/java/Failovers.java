import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * What must hold while a leader dies: whoever runs these kills it meanwhile. A send whose acknowledgement was lost is
 * repeated, so a message may come twice.
 */
final class Failovers {
    static final int COUNT = 120;

    private static final long PAUSE_MILLIS = 50;
    private static final int TRIES = 60;
    private static final long AFTER_FAILURE_MILLIS = 500;

    private Failovers() {
    }

    static String inOrder(Place place) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.subscribe(place.topic, "*");
        Inbox inbox = place.readingInOrder(consumer, message -> true);
        int failed = Orders.send(place, place.producer(), 0, COUNT, PAUSE_MILLIS);
        expectAll(inbox, place.keys(COUNT));
        Orders.checkOrder(inbox.all(), COUNT, false);
        return COUNT + " came in order, " + (inbox.all().size() - COUNT) + " twice, " + failed + " sends repeated";
    }

    /** Of five messages three end well and two are rolled back; see `Transactions`. */
    static String transactions(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        TransactionMQProducer producer = place.prepared(new TransactionMQProducer(place.topic + "-senders"));
        producer.setTransactionListener(new Transactions());
        place.started(producer);
        Set<String> committed = new HashSet<>();
        Set<String> rolledBack = new HashSet<>();
        for (Message message : place.messages(COUNT)) {
            try {
                TransactionSendResult result = producer.sendMessageInTransaction(message, null);
                Place.acknowledged(result);
                int rest = Integer.parseInt(message.getUserProperty("n")) % 5;
                (rest == 1 || rest == 3 ? rolledBack : committed).add(message.getKeys());
                Failed.unless((result.getLocalTransactionState() == LocalTransactionState.COMMIT_MESSAGE) == (rest == 0),
                    "the local transaction ended with " + result.getLocalTransactionState());
            } catch (Failed error) {
                throw error;
            } catch (Exception error) {
                Thread.sleep(AFTER_FAILURE_MILLIS); // it may be there, and the broker may ask
            }
            Thread.sleep(PAUSE_MILLIS);
        }
        expectAll(inbox, committed);
        inbox.all().forEach(one -> Failed.unless(!rolledBack.contains(one.key()), one.key() + " was rolled back, and came"));
        return committed.size() + " committed came, " + rolledBack.size() + " rolled back did not";
    }

    static String delays(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        DefaultMQProducer producer = place.producer();
        Map<String, Long> due = new HashMap<>();
        for (Message message : place.messages(COUNT)) {
            message.setDelayTimeLevel(2);
            insist(() -> {
                due.put(message.getKeys(), System.currentTimeMillis() + 5000);
                return Place.acknowledged(producer.send(message));
            });
            Thread.sleep(PAUSE_MILLIS);
        }
        expectAll(inbox, due.keySet());
        Map<String, Long> came = new HashMap<>();
        inbox.all().forEach(one -> came.merge(one.key(), one.atMillis(), Math::max));
        came.forEach((key, at) -> Failed.unless(at >= due.get(key), key + " came " + (due.get(key) - at) + " ms early"));
        return COUNT + " came, none early, " + (inbox.all().size() - COUNT) + " twice";
    }

    /** Wait until each key has come at least once. */
    static void expectAll(Inbox inbox, Set<String> keys) throws InterruptedException {
        boolean enough = inbox.await(all -> {
            Set<String> missing = new HashSet<>(keys);
            all.forEach(one -> missing.remove(one.key()));
            return missing.isEmpty();
        }, 2 * Place.SECONDS);
        Set<String> missing = new HashSet<>(keys);
        inbox.all().forEach(one -> missing.remove(one.key()));
        Failed.unless(enough, missing.size() + " acknowledged messages did not come: " + missing);
    }

    static void expectAll(Inbox inbox, List<String> keys) throws InterruptedException {
        expectAll(inbox, new HashSet<>(keys));
    }

    /** Repeat a send until it is acknowledged, as an application would; how often it failed. */
    static int insist(Callable<?> send) throws Exception {
        for (int failed = 0; ; failed++) {
            try {
                send.call();
                return failed;
            } catch (Exception error) {
                if (failed == TRIES) {
                    throw error;
                }
                Thread.sleep(AFTER_FAILURE_MILLIS);
            }
        }
    }
}

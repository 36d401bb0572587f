import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that fail come again, and become dead letters in the end. */
final class Retries {
    private Retries() {
    }

    /** Three of twenty fail once; their compressed bodies survive it. */
    static String again(Place place) throws Exception {
        Set<String> toFail = ConcurrentHashMap.newKeySet();
        toFail.addAll(place.keys(3));
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.subscribe(place.topic, "*");
        Inbox inbox = place.reading(consumer, message -> !toFail.remove(message.getKeys()));
        List<Message> messages = place.messages(Place.MESSAGES);
        byte[] body = "x".repeat(5000).getBytes();
        messages.forEach(message -> message.setBody(body));
        Place.send(place.producer(), messages);
        int deliveries = Place.MESSAGES + 3;
        Failed.unless(inbox.await(all -> all.size() >= deliveries, Place.SECONDS),
            inbox.all().size() + " of " + deliveries + " deliveries");
        for (Inbox.Delivery one : inbox.all()) {
            MessageExt message = one.message();
            Failed.unless(message.getBody().length == 5000, one.key() + " came with another body");
            Failed.unless(message.getTopic().equals(place.topic), one.key() + " came from " + message.getTopic());
        }
        for (int number = 0; number < Place.MESSAGES; number++) {
            String key = place.key(number);
            String times = inbox.all().stream().filter(one -> one.key().equals(key))
                .map(one -> "" + one.message().getReconsumeTimes()).collect(Collectors.joining(","));
            Failed.unless(times.equals(number < 3 ? "0,1" : "0"), key + " came with the counts " + times);
        }
        return Place.MESSAGES + " came, 3 of them again after a second";
    }

    /** A listener that always fails gets each message three times; then they are dead letters. */
    static String deadLetters(Place place) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.setMaxReconsumeTimes(2);
        consumer.subscribe(place.topic, "*");
        Inbox inbox = place.reading(consumer, message -> false);
        Place.send(place.producer(), place.messages(5));
        inbox.expect(place.keys(5), 3, Place.SECONDS);
        expectDeadLetters(place, 5);
        inbox.expect(place.keys(5), 3, Place.SECONDS);
        return "5 came 3 times each, and are dead letters";
    }

    /** The same for a consumer in order, which repeats by itself and gives up by itself. */
    static String deadLettersInOrder(Place place) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.setMaxReconsumeTimes(1);
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.subscribe(place.topic, "*");
        String failing = place.key(2);
        Inbox inbox = place.readingInOrder(consumer, message -> !message.getKeys().equals(failing));
        Place.send(place.producer(), place.messages(8));
        List<Inbox.Delivery> dead = deadLetters(place, 1);
        Failed.unless(dead.get(0).key().equals(failing), dead.get(0).key() + " is a dead letter");
        Failed.unless(inbox.await(all -> all.stream().map(Inbox.Delivery::key).distinct().count() == 8, Place.SECONDS),
            "a message is missing");
        return "7 came, 1 failed " + inbox.count(failing) + " times and is a dead letter";
    }

    private static void expectDeadLetters(Place place, int count) throws Exception {
        List<String> keys = deadLetters(place, count).stream().map(Inbox.Delivery::key).sorted().toList();
        Failed.unless(keys.equals(place.keys(count)), "the dead letters are " + keys);
    }

    /** Dead letters are not readable until an operator says so. */
    private static List<Inbox.Delivery> deadLetters(Place place, int count) throws Exception {
        String topic = "%DLQ%" + place.group();
        place.makeTopic(topic);
        DefaultLitePullConsumer reader = place.prepared(new DefaultLitePullConsumer(place.topic + "-undertakers"));
        reader.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        reader.subscribe(topic, "*");
        reader.start();
        try {
            Inbox inbox = new Inbox();
            for (int poll = 0; poll < 5 * Place.SECONDS && inbox.all().size() < count; poll++) {
                reader.poll(200).forEach(inbox::add);
            }
            reader.poll(500).forEach(inbox::add);
            Failed.unless(inbox.all().size() == count, inbox.all().size() + " dead letters");
            return inbox.all();
        } finally {
            reader.shutdown();
        }
    }
}

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** Names that the client puts before topics and groups. */
final class Namespaces {
    private static final String SPACE = "tenant";

    private Namespaces() {
    }

    /** A message fails once, so that the retry topic has the namespace, too. */
    static String ofNames(Place place) throws Exception {
        place.makeTopic(SPACE + "%" + place.topic);
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.setNamespace(SPACE);
        DefaultMQProducer producer = place.prepared(new DefaultMQProducer(place.topic + "-senders"));
        producer.setNamespace(SPACE);
        Inbox outside = place.reading(place.consumer());
        Set<String> toFail = ConcurrentHashMap.newKeySet();
        toFail.add(place.key(3));
        consumer.subscribe(place.topic, "*");
        Inbox inbox = place.reading(consumer, message -> !toFail.remove(message.getKeys()));
        Place.send(place.started(producer), place.messages(Place.MESSAGES));
        Failed.unless(inbox.await(all -> all.size() > Place.MESSAGES, Place.SECONDS),
            inbox.all().size() + " of " + (Place.MESSAGES + 1) + " deliveries");
        for (Inbox.Delivery one : inbox.all()) {
            Failed.unless(one.message().getTopic().equals(place.topic), "it came from " + one.message().getTopic());
        }
        Failed.unless(inbox.count(place.key(3)) == 2, place.key(3) + " did not come twice");
        Failed.unless(outside.all().isEmpty(), outside.all().size() + " came to the topic without a namespace");
        return Place.MESSAGES + " came within the namespace, 1 of them again, none outside";
    }
}

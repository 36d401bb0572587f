import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/** The namespace of version 5 travels in the headers and is for proxies: brokers pass it over. */
final class NamespacesV2 {
    private NamespacesV2() {
    }

    static String ofHeaders(Place place) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        consumer.setNamespaceV2("tenant");
        DefaultMQProducer producer = place.prepared(new DefaultMQProducer(place.topic + "-senders"));
        producer.setNamespaceV2("tenant");
        Inbox inbox = place.reading(consumer);
        Place.send(place.started(producer), place.messages(Place.MESSAGES));
        inbox.expectOnce(place.keys(Place.MESSAGES), Place.SECONDS);
        return Place.MESSAGES + " came once";
    }
}

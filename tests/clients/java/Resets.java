import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;

/** A group's offsets, moved while it consumes. */
final class Resets {
    private Resets() {
    }

    static String toTheBeginning(Place place) throws Exception {
        DefaultMQPushConsumer consumer = place.consumer();
        Inbox inbox = place.reading(consumer);
        Place.send(place.producer(), place.messages(Place.MESSAGES));
        inbox.expectOnce(place.keys(Place.MESSAGES), Place.SECONDS);
        int queues = place.admin.resetOffsetByTimestamp(place.topic, place.group(), 0, true).size();
        Failed.unless(queues > 0, "no queue was moved");
        inbox.expect(place.keys(Place.MESSAGES), 2, Place.SECONDS);
        return Place.MESSAGES + " came, and once more after " + queues + " queues were moved to the beginning";
    }
}

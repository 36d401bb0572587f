import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** All ways to send; a push consumer must get what was sent, where the acknowledgements say. */
final class Sends {
    private static final int LARGE_BYTES = 1_000_000;

    private Sends() {
    }

    static String oneByOne(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        return compare(place, inbox, Place.send(place.producer(), place.messages(Place.MESSAGES)));
    }

    static String asynchronously(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        DefaultMQProducer producer = place.producer();
        List<CompletableFuture<SendResult>> results = place.messages(200).stream().map(message -> {
            CompletableFuture<SendResult> result = new CompletableFuture<>();
            try {
                producer.send(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult one) {
                        result.complete(one);
                    }

                    @Override
                    public void onException(Throwable error) {
                        result.completeExceptionally(error);
                    }
                });
            } catch (Exception error) {
                result.completeExceptionally(error);
            }
            return result;
        }).toList();
        CompletableFuture.allOf(results.toArray(new CompletableFuture<?>[0])).get(Place.SECONDS, TimeUnit.SECONDS);
        return compare(place, inbox, results.stream().map(CompletableFuture::join).map(Place::acknowledged).toList());
    }

    static String oneway(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        DefaultMQProducer producer = place.producer();
        for (Message message : place.messages(Place.MESSAGES)) {
            producer.sendOneway(message);
        }
        inbox.expectOnce(place.keys(Place.MESSAGES), Place.SECONDS);
        return Place.MESSAGES + " sent, each came once";
    }

    static String batch(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        SendResult result = Place.acknowledged(place.producer().send(place.messages(Place.MESSAGES)));
        List<String> ids = Arrays.asList(result.getOffsetMsgId().split(","));
        Failed.unless(ids.size() == Place.MESSAGES, ids.size() + " ids were acknowledged");
        List<Inbox.Delivery> all = inbox.expectOnce(place.keys(Place.MESSAGES), Place.SECONDS);
        for (Inbox.Delivery one : all) {
            int number = Integer.parseInt(one.message().getUserProperty("n"));
            Failed.unless(one.message().getMsgId() != null && one.message().getQueueId()
                == result.getMessageQueue().getQueueId()
                && one.message().getQueueOffset() == result.getQueueOffset() + number
                && one.message().getKeys().equals(place.key(number)), one.key() + " is not where the batch was put");
        }
        return Place.MESSAGES + " in one request, each came once, in place";
    }

    /** A selector sends each colour to one queue. */
    static String selected(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        DefaultMQProducer producer = place.producer();
        Map<Integer, Integer> queues = new HashMap<>();
        for (int number = 0; number < Place.MESSAGES; number++) {
            SendResult result = Place.acknowledged(producer.send(
                place.message(number), (all, message, colour) -> all.get((Integer) colour), number % 3));
            queues.put(number, result.getMessageQueue().getQueueId());
        }
        for (Inbox.Delivery one : inbox.expectOnce(place.keys(Place.MESSAGES), Place.SECONDS)) {
            int number = Integer.parseInt(one.message().getUserProperty("n"));
            Failed.unless(one.message().getQueueId() == queues.get(number), one.key() + " is in another queue");
            Failed.unless(queues.get(number).equals(queues.get(number % 3)), one.key() + " was not sent where chosen");
        }
        return Place.MESSAGES + " sent to 3 chosen queues, each came once";
    }

    /** A megabyte of text, which the client compresses, and as much noise. */
    static String large(Place place) throws Exception {
        Inbox inbox = place.reading(place.consumer());
        DefaultMQProducer producer = place.producer();
        List<byte[]> bodies = List.of(text(), noise());
        for (int number = 0; number < bodies.size(); number++) {
            Message message = place.message(number);
            message.setBody(bodies.get(number));
            Place.acknowledged(producer.send(message));
        }
        for (Inbox.Delivery one : inbox.expectOnce(place.keys(bodies.size()), Place.SECONDS)) {
            byte[] sent = bodies.get(Integer.parseInt(one.message().getUserProperty("n")));
            Failed.unless(Arrays.equals(one.message().getBody(), sent), one.key() + " has another body");
        }
        return "1 MB of text, compressed, and 1 MB of noise: equal bodies came";
    }

    static byte[] text() {
        return "a line of a log, much like the one before\n".repeat(LARGE_BYTES / 42).getBytes();
    }

    private static byte[] noise() {
        byte[] noise = new byte[LARGE_BYTES];
        new Random(1).nextBytes(noise);
        return noise;
    }

    /** Each message came once, where its acknowledgement said, under the same ids. */
    private static String compare(Place place, Inbox inbox, List<SendResult> results) throws Exception {
        Map<String, SendResult> byId = new HashMap<>();
        results.forEach(result -> byId.put(result.getMsgId(), result));
        Failed.unless(byId.size() == results.size(), "two messages have one id");
        for (Inbox.Delivery one : inbox.expectOnce(new HashSet<>(place.keys(results.size())), Place.SECONDS)) {
            SendResult result = byId.get(one.message().getMsgId());
            Failed.unless(result != null && result.getMessageQueue().getQueueId() == one.message().getQueueId()
                && result.getQueueOffset() == one.message().getQueueOffset(), one.key() + " was acknowledged otherwise");
        }
        return results.size() + " acknowledged, each came once, in its place";
    }
}

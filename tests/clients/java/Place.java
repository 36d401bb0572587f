import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What a scenario runs on: a topic of its own, and the clients that it opens, which end with it. */
final class Place implements AutoCloseable {
    /** Long enough for a busy machine, and for a retry topic that a consumer has to find. */
    static final int SECONDS = 60;
    static final int MESSAGES = 20;

    private static final int QUEUES = 4;
    private static final int READABLE_AND_WRITABLE = 6;
    /** Of hurried clients, which poll routes, send heartbeats, and give up on sends so. Defaults are 30 and 3 s. */
    private static final int INTERVAL_MILLIS = 2_000;
    private static final int SEND_MILLIS = 20_000;
    private static final int CONSUMER_THREADS = 4;
    private static final long ROUTE_MILLIS = 20_000;
    private static final long PAUSE_MILLIS = 100;

    final String topic;
    final DefaultMQAdminExt admin;
    private final String names;
    private final boolean hurried;
    private final RPCHook signing;
    private final Deque<Runnable> opened = new ArrayDeque<>();
    private int clients;

    /** The clients sign by `signing`, unless it is null. */
    Place(String names, String topic, DefaultMQAdminExt admin, boolean hurried, RPCHook signing) {
        this.names = names;
        this.topic = topic;
        this.admin = admin;
        this.hurried = hurried;
        this.signing = signing;
    }

    @Override
    public void close() {
        while (!opened.isEmpty()) {
            opened.pop().run();
        }
    }

    String group() {
        return topic + "-readers";
    }

    /** The addresses of all brokers that lead. */
    List<String> brokers() throws Exception {
        List<String> addresses = new ArrayList<>();
        admin.examineBrokerClusterInfo().getBrokerAddrTable().values()
            .forEach(one -> addresses.add(one.getBrokerAddrs().get(0L)));
        return addresses;
    }

    /** Make a topic, or make one readable; clients can see it afterwards. */
    void makeTopic(String name) throws Exception {
        for (String broker : brokers()) {
            admin.createAndUpdateTopicConfig(
                broker, new TopicConfig(name, QUEUES, QUEUES, READABLE_AND_WRITABLE));
        }
        awaitRoute(name);
    }

    private void awaitRoute(String name) throws Exception {
        long deadline = System.currentTimeMillis() + ROUTE_MILLIS;
        while (true) {
            try {
                admin.examineTopicRouteInfo(name);
                return;
            } catch (Exception error) {
                Failed.unless(System.currentTimeMillis() < deadline, "no route of " + name + ": " + error);
                Thread.sleep(PAUSE_MILLIS);
            }
        }
    }

    /** A client of this place, not started. A name of its own keeps clients of one process apart. */
    <C extends ClientConfig> C prepared(C client) {
        client.setNamesrvAddr(names);
        client.setInstanceName(topic + "-" + clients++);
        if (hurried) {
            client.setPollNameServerInterval(INTERVAL_MILLIS);
            client.setHeartbeatBrokerInterval(INTERVAL_MILLIS);
        }
        if (signing != null) { // whoever asks first for the connections of this name says how requests are signed
            MQClientManager.getInstance().getOrCreateMQClientInstance(client, signing);
        }
        return client;
    }

    DefaultMQProducer producer() throws Exception {
        return started(prepared(new DefaultMQProducer(topic + "-senders")));
    }

    <P extends DefaultMQProducer> P started(P producer) throws Exception {
        if (hurried) {
            producer.setSendMsgTimeout(SEND_MILLIS);
        }
        producer.start();
        opened.push(producer::shutdown);
        return producer;
    }

    /** A push consumer of the place's group that reads everything, not started. */
    DefaultMQPushConsumer consumer() {
        return configured(prepared(new DefaultMQPushConsumer(group())));
    }

    DefaultMQPushConsumer configured(DefaultMQPushConsumer consumer) {
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(CONSUMER_THREADS);
        consumer.setConsumeThreadMax(CONSUMER_THREADS);
        return consumer;
    }

    /** Start a push consumer that takes all of its topic. */
    Inbox reading(DefaultMQPushConsumer consumer) throws Exception {
        consumer.subscribe(topic, "*");
        return reading(consumer, message -> true);
    }

    /** Start a push consumer that has subscribed; the verdict says whether a message counts as consumed. */
    Inbox reading(DefaultMQPushConsumer consumer, Predicate<MessageExt> verdict) throws Exception {
        Inbox inbox = new Inbox();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1); // a second
            return takeAll(inbox, messages, verdict)
                ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        start(consumer);
        return inbox;
    }

    /** The same, in the order of each queue. */
    Inbox readingInOrder(DefaultMQPushConsumer consumer, Predicate<MessageExt> verdict) throws Exception {
        Inbox inbox = new Inbox();
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
            takeAll(inbox, messages, verdict)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        start(consumer);
        return inbox;
    }

    void start(DefaultMQPushConsumer consumer) throws Exception {
        consumer.start();
        opened.push(consumer::shutdown);
    }

    /** A lite pull consumer of the place's group that reads everything, not started. */
    DefaultLitePullConsumer puller() {
        DefaultLitePullConsumer consumer = prepared(new DefaultLitePullConsumer(group()));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        opened.push(consumer::shutdown);
        return consumer;
    }

    /** The default is one message a call. */
    private static boolean takeAll(Inbox inbox, List<MessageExt> messages, Predicate<MessageExt> verdict) {
        boolean taken = true;
        for (MessageExt message : messages) {
            inbox.add(message);
            taken &= verdict.test(message);
        }
        return taken;
    }

    String key(int number) {
        return topic + "-" + number;
    }

    List<String> keys(int count) {
        return IntStream.range(0, count).mapToObj(this::key).collect(Collectors.toList());
    }

    /** A message whose key and body name its number. */
    Message message(int number) {
        byte[] body = key(number).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, "red", key(number), body);
        message.putUserProperty("n", Integer.toString(number));
        return message;
    }

    List<Message> messages(int count) {
        return IntStream.range(0, count).mapToObj(this::message).collect(Collectors.toList());
    }

    /** Send messages one by one. */
    static List<SendResult> send(DefaultMQProducer producer, List<Message> messages) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (Message message : messages) {
            results.add(acknowledged(producer.send(message)));
        }
        return results;
    }

    static SendResult acknowledged(SendResult result) {
        Failed.unless(result.getSendStatus() == SendStatus.SEND_OK, "the broker answered " + result.getSendStatus());
        return result;
    }
}

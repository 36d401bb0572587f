import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import io.openmessaging.storage.dledger.client.DLedgerClient;
import io.openmessaging.storage.dledger.client.DLedgerClientRpcNettyService;
import io.openmessaging.storage.dledger.protocol.DLedgerResponseCode;
import io.openmessaging.storage.dledger.protocol.MetadataRequest;
import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.BufferedOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Clients that append while leaders are lost: Clients ID PEERS FOLDER WORKLOAD. Each of so many threads appends one numbered body
 * at a time through DLedgerClient, and repeats it until it is acknowledged. Lines on standard input:
 *
 * <pre>
 * leader   answered by {"leader": ID}
 * fault    answered by {"noted": true}, and by {"acknowledged_anew": true} once an attempt that began later is acknowledged
 * stop     answered by {"acknowledged": N}; FOLDER/acknowledged then holds all the numbers, 8 bytes each
 * </pre>
 */
public final class Clients {
    private static final long RETRY_MS = 5;
    private static final long METADATA_MS = 500;

    private final DLedgerClient client;
    private final int bodyBytes;
    private final AtomicLong next = new AtomicLong();
    private final List<Long> accepted = new ArrayList<>();
    private volatile boolean stopped;
    private volatile long faultAt;
    private volatile boolean waiting;

    private Clients(DLedgerClient client, int bodyBytes) {
        this.client = client;
        this.bodyBytes = bodyBytes;
    }

    public static void main(String[] args) throws Exception {
        JSONObject work = JSON.parseObject(args[3]);
        DLedgerClient client = new DLedgerClient(Member.GROUP, Member.peers(args[1]));
        client.startup();
        DLedgerClientRpcNettyService asking = new DLedgerClientRpcNettyService();
        asking.updatePeers(Member.peers(args[1]));
        asking.startup();
        Clients clients = new Clients(client, work.getIntValue("body_bytes"));
        List<Thread> threads = new ArrayList<>();
        for (int each = 0; each < work.getIntValue("in_flight"); each++) {
            Thread thread = new Thread(clients::work);
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.equals("leader")) {
                print("leader", leader(asking, new TreeSet<>(JSON.parseObject(args[1]).keySet())));
            } else if (line.equals("fault")) {
                print("noted", true);
                clients.faultAt = System.nanoTime();
                clients.waiting = true;
            } else if (line.equals("stop")) {
                clients.stopped = true;
                for (Thread thread : threads) {
                    thread.join();
                }
                clients.write(Paths.get(args[2], "acknowledged"));
                break;
            }
        }
        Runtime.getRuntime().halt(0); // the client's threads never end
    }

    private static synchronized void print(String name, Object value) {
        JSONObject line = new JSONObject();
        line.put(name, value);
        System.out.println(line.toJSONString());
        System.out.flush();
    }

    /** The member that says of itself that it leads, "" without one. */
    private static String leader(DLedgerClientRpcNettyService asking, Iterable<String> ids) {
        for (String id : ids) {
            MetadataRequest request = new MetadataRequest();
            request.setGroup(Member.GROUP);
            request.setRemoteId(id);
            try {
                if (id.equals(asking.metadata(request).get(METADATA_MS, TimeUnit.MILLISECONDS).getLeaderId())) {
                    return id;
                }
            } catch (Exception error) {
                System.err.println(id + " does not say who leads: " + error);
            }
        }
        return "";
    }

    private void work() {
        while (!stopped) {
            long number = next.incrementAndGet();
            byte[] body = ByteBuffer.allocate(bodyBytes).putLong(number).array();
            while (!stopped) {
                long began = System.nanoTime();
                if (client.append(body).getCode() == DLedgerResponseCode.SUCCESS.getCode()) {
                    acknowledged(number, began);
                    break;
                }
                pause();
            }
        }
    }

    private synchronized void acknowledged(long number, long began) {
        accepted.add(number);
        if (waiting && began - faultAt > 0) {
            waiting = false;
            print("acknowledged_anew", true);
        }
    }

    private static void pause() {
        try {
            Thread.sleep(RETRY_MS);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private synchronized void write(Path path) throws IOException {
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(path)))) {
            for (long number : accepted) {
                out.writeLong(number);
            }
        }
        print("acknowledged", accepted.size());
    }
}

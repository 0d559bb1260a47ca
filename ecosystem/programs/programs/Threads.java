// Threads of Java. Each line printed is a test that passed.
import java.io.*;
import java.net.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

public class Threads {
    static void test(String name, boolean passed) { if (passed) System.out.println(name); }

    public static void main(String[] arguments) throws Exception {
        test("main runs", true);
        List<Thread> threads = new ArrayList<>();
        AtomicInteger sum = new AtomicInteger();
        for (int n = 0; n < 500; n++) {
            int number = n;
            threads.add(new Thread(() -> {
                sleep(300);
                sum.addAndGet(number);
            }));
        }
        for (Thread thread : threads) thread.start();
        for (Thread thread : threads) thread.join();
        test("500 threads", sum.get() == 124750);

        ExecutorService pool = Executors.newFixedThreadPool(50);
        ServerSocket server = new ServerSocket(0, 200, InetAddress.getLoopbackAddress());
        Thread acceptor = new Thread(() -> {
            try {
                while (true) {
                    Socket client = server.accept();
                    pool.submit(() -> {
                        int n = number(client);
                        send(client, n * n);
                        client.close();
                        return null;
                    });
                }
            } catch (IOException e) { // The socket is closed.
            }
        });
        acceptor.start();
        List<Future<Boolean>> answers = new ArrayList<>();
        ExecutorService clients = Executors.newFixedThreadPool(50);
        for (int n = 0; n < 200; n++) {
            int number = n;
            answers.add(clients.submit(() -> {
                try (Socket socket = new Socket(server.getInetAddress(), server.getLocalPort())) {
                    send(socket, number);
                    return number(socket) == number * number;
                }
            }));
        }
        boolean right = true;
        for (Future<Boolean> answer : answers) right &= answer.get();
        test("200 connections", right);
        server.close(); acceptor.join(); pool.shutdown(); clients.shutdown();

        List<byte[]> garbage = new ArrayList<>();
        for (int n = 0; n < 20000; n++) {
            garbage.add(new byte[10000]);
            if (garbage.size() > 1000) garbage.clear();
        }
        System.gc();
        test("garbage is collected", true);
        String none = null;
        try {
            none.length();
        } catch (NullPointerException e) {
            test("a null pointer is an exception", true);
        }
        try {
            recurse(0);
        } catch (StackOverflowError e) {
            test("a stack overflow is an error", true);
        }
        Thread sleeper = new Thread(() -> test("an interrupt ends a sleep", sleep(100000)));
        sleeper.start();
        sleeper.interrupt();
        sleeper.join();
        Process echo = new ProcessBuilder("echo", "7").start();
        test("a process", new String(echo.getInputStream().readAllBytes()).equals("7\n"));
    }

    /** Whether an interrupt has ended the sleep. */
    static boolean sleep(long ms) {
        try {
            Thread.sleep(ms);
            return false;
        } catch (InterruptedException e) {
            return true;
        }
    }

    static int number(Socket socket) throws IOException {
        var in = new BufferedReader(new InputStreamReader(socket.getInputStream()));
        return Integer.parseInt(in.readLine());
    }

    static void send(Socket socket, int number) throws IOException {
        socket.getOutputStream().write((number + "\n").getBytes());
    }

    static int recurse(int n) { return recurse(n + 1) + 1; }
}

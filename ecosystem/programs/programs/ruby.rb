# Threads, queues, condition variables, timeouts, sockets, processes and signals. Each line printed
# is a test that passed.
require "socket"
require "timeout"

def test(name)
  puts name if yield
rescue => error
  warn "#{name}: #{error.full_message}"
end
$stdout.sync = true

test("500 threads sleep at the same time") do
  begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  500.times.map { Thread.new { sleep 0.5 } }.each(&:join)
  Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun < 5
end
test("a queue between threads") do
  queue, sums = Queue.new, Queue.new
  workers = 8.times.map do
    Thread.new do
      sum = 0
      while (n = queue.pop) != :end
        sum += n
      end
      sums << sum
    end
  end
  10_000.times { |n| queue << n }
  8.times { queue << :end }
  workers.each(&:join)
  8.times.sum { sums.pop } == 49_995_000
end
test("a mutex and a condition variable") do
  lock, changed, turn = Mutex.new, ConditionVariable.new, 0
  threads = 4.times.map do |me|
    Thread.new do
      200.times do
        lock.synchronize do
          changed.wait(lock) until turn % 4 == me
          turn += 1
          changed.broadcast
        end
      end
    end
  end
  threads.each(&:join)
  turn == 800
end
test("Timeout ends a sleep") do
  Timeout.timeout(0.2) { sleep 60 }
  false
rescue Timeout::Error
  true
end
test("Thread#kill ends a read of a pipe") do
  reader, = IO.pipe
  thread = Thread.new { reader.read(1) }
  Thread.pass until thread.stop?
  thread.kill
  thread.join(10) == thread
end
test("threads that compute share the time") do
  count = Array.new(2, 0)
  threads = 2.times.map { |n| Thread.new { loop { count[n] += 1 } } }
  sleep 0.5
  threads.each(&:kill).each(&:join)
  count.all?(&:positive?)
end
test("100 connections to a server of threads") do
  server = TCPServer.new("127.0.0.1", 0)
  Thread.new do
    loop do
      client = server.accept
      Thread.new { client.puts client.gets.to_i ** 2 }
    end
  end
  clients = 100.times.map do |n|
    Thread.new do
      socket = TCPSocket.new("127.0.0.1", server.addr[1])
      socket.puts n
      socket.gets.to_i == n * n
    end
  end
  clients.all?(&:value)
end
test("processes and their output, from threads") do
  10.times.map { |n| Thread.new { `echo #{n}`.to_i == n } }.all?(&:value)
end
test("fork with threads") do
  Thread.new { sleep }
  pid = fork { exit!(Thread.new { 7 }.value) }
  Process.wait2(pid)[1].exitstatus == 7
end
test("a signal's handler runs while main waits") do
  got = false
  trap("USR1") { got = true }
  Thread.new { Process.kill("USR1", Process.pid) }
  sleep 0.01 until got
  got
end

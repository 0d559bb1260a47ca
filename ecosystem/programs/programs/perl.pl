# Threads of Perl, each with an interpreter. Each line printed is a test that passed.
use strict;
use warnings;
use threads;
use threads::shared;
use Thread::Queue;
use IO::Socket::INET;
use Time::HiRes qw(sleep time);
$| = 1;
sub test { my ($name, $passed) = @_; print "$name\n" if $passed; }

my $begun = time;
$_->join for map { threads->create(sub { sleep 0.5 }) } 1 .. 50;
test("50 threads sleep at the same time", time - $begun < 10);

my ($in, $out) = (Thread::Queue->new, Thread::Queue->new);
sub add {
    my $sum = 0;
    while (defined(my $n = $in->dequeue)) { $sum += $n }
    $out->enqueue($sum);
}
my @workers = map { threads->create(\&add) } 1 .. 4;
$in->enqueue(1 .. 2000); $in->end; $_->join for @workers;
my $sum = 0; $sum += $out->dequeue for 1 .. 4;
test("a queue between threads", $sum == 2_001_000);

my $turn :shared = 0;
sub take_turns {
    my ($me) = @_;
    for (1 .. 50) {
        lock $turn;
        cond_wait $turn until $turn % 3 == $me;
        $turn++;
        cond_broadcast $turn;
    }
}
$_->join for map { threads->create(\&take_turns, $_) } 0 .. 2;
test("a shared variable and its condition", $turn == 150);

my $server = IO::Socket::INET->new(Listen => 64, LocalAddr => "127.0.0.1", Proto => "tcp") or die;
my $acceptor = threads->create(sub {
    for (1 .. 20) {
        my $client = $server->accept;
        my $line = <$client>;
        print $client $line ** 2, "\n";
        close $client;
    }
});
sub ask {
    my ($n) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $server->sockport)
        or return 0;
    print $socket "$n\n";
    return <$socket> == $n ** 2;
}
my @clients = map { threads->create(\&ask, $_) } 1 .. 20;
my $right = grep { $_->join } @clients;
$acceptor->join;
test("20 connections", $right == 20);

my $ready = Thread::Queue->new;
my $sleeper = threads->create(sub {
    $SIG{KILL} = sub { threads->exit };
    $ready->enqueue(1);
    sleep 0.05 while 1;
});
$ready->dequeue; $sleeper->kill("KILL"); $sleeper->join;
test("a signal of Perl's ends a thread", 1);
my @outputs = map { my $n = $_; threads->create(sub { `echo $n` == $n }) } 1 .. 5;
test("processes from threads", 5 == grep { $_->join } @outputs);

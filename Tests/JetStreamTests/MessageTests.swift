import Fleet
import StreamRuntime
import Testing

@testable import JetStream

@Suite(.timeLimit(.minutes(10))) struct MessageTests {
  @Test func messageReachesAllSubscribers() async throws {
    let broker = try await Broker()
    var hosts: [FleetHost] = []
    let received = Locked<[Int: [[UInt8]]]>([:])
    for index in 0..<3 {
      let host = try await connectedHost(broker)
      host.subscribe(to: .heartbeats) { message in
        received.withLock { $0[index, default: []].append(message) }
        return nil
      }
      hosts.append(host)
    }
    // A subscription has no acknowledgement: the first messages may be lost.
    for round in 0..<6000 {
      if received.withLock({ $0.count }) == 3 { break }
      hosts[round % 3].send([7], to: .heartbeats)
      try await Task.sleep(for: .milliseconds(10))
    }
    #expect(received.withLock { $0.values.allSatisfy { $0.first == [7] } && $0.count == 3 })
  }

  @Test func allHostsAnswerAQuestionToAll() async throws {
    let broker = try await Broker()
    var hosts: [FleetHost] = []
    for index in 0..<3 {
      let host = try await connectedHost(broker)
      host.subscribe(to: .positions(shard: 4)) { [UInt8(index)] + $0 }
      hosts.append(host)
    }
    #expect(await hosts[0].reachesAnswers([9], to: .positions(shard: 4), count: 3))
    let answers = try #require(await hosts[0].ask([9], to: .positions(shard: 4), count: 3))
    #expect(Set(answers) == [[0, 9], [1, 9], [2, 9]])
    // More answers than there are hosts: until the timeout.
    let all = try #require(await hosts[1].ask([8], to: .positions(shard: 4), count: 4, timeout: .seconds(2)))
    #expect(Set(all) == [[0, 8], [1, 8], [2, 8]])
  }

  @Test func questionWithoutAListenerIsAnsweredAtOnce() async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker)
    // The time limit of the test is shorter.
    #expect(await host.ask([1], to: .interest(shard: 0, stream: "quotes"), timeout: .seconds(3600)) == [])
    #expect(await host.ask([1], to: .host(.random()), timeout: .seconds(3600)) == [])
  }

  @Test func oneOfSeveralInterestedHostsAnswers() async throws {
    let broker = try await Broker()
    let asking = try await connectedHost(broker)
    let questions = Locked(0)
    var hosts: [FleetHost] = []
    let subject = FleetSubject.interest(shard: 0, stream: "a stream/with.any*>name\u{0}ä")
    for _ in 0..<3 {
      let host = try await connectedHost(broker)
      host.subscribe(to: subject) { _ in
        questions.withLock { $0 += 1 }
        return [1]
      }
      hosts.append(host)
    }
    #expect(await asking.reachesAnswers([9], to: subject, count: 1))
    let before = questions.withLock { $0 }
    for _ in 0..<20 { #expect(await asking.ask([9], to: subject) == [[1]]) }
    #expect(questions.withLock { $0 } == before + 20)
    #expect(await asking.ask([9], to: .interest(shard: 0, stream: "a stream/with.any*>name\u{0}")) == [])
    #expect(await asking.ask([9], to: .interest(shard: 1, stream: "a stream/with.any*>name\u{0}ä")) == [])
    for host in hosts { host.unsubscribe(from: subject) }
    var answers: [[UInt8]]? = [[1]]
    for _ in 0..<600 where answers != [] {
      try await Task.sleep(for: .milliseconds(10))
      answers = await asking.ask([9], to: subject)
    }
    #expect(answers == [])
  }

  @Test func subscriptionsContinueAfterAReconnection() async throws {
    let broker = try await Broker()
    let hosts = [try await connectedHost(broker), try await connectedHost(broker)]
    let id = HostID.random()
    hosts[0].subscribe(to: .host(id)) { [1] + $0 }
    #expect(await hosts[1].reachesAnswers([2], to: .host(id), count: 1))
    broker.kill()
    for host in hosts { #expect(await host.reaches { !$0.reasons.isEmpty }) }
    try await broker.start()
    for host in hosts { #expect(await host.isConnected(times: 2)) }
    #expect(await hosts[1].reachesAnswers([2], to: .host(id), count: 1))
    #expect(await hosts[1].ask([3], to: .host(id)) == [[1, 3]])
    #expect(await hosts[0].append([1], after: 0) == .stored)
    #expect(await hosts[1].reaches { $0.tail == [.init(shard: 0, sequence: 1, bytes: [1])] })
  }

  @Test func questionOfAStrangerCausesNoMessageElsewhere() async throws {
    let broker = try await Broker()
    let hosts = [try await connectedHost(broker), try await connectedHost(broker)]
    let id = HostID.random()
    hosts[0].subscribe(to: .host(id)) { _ in Array("{\"name\":\"made\",\"subjects\":[\"made\"]}".utf8) }
    #expect(await hosts[1].reachesAnswers([2], to: .host(id), count: 1))
    hosts[1].publish(
      [1], to: "streamd.test.host." + JetStreamNames.hexadecimal(id.bytes), reply: "$JS.API.STREAM.CREATE.made")
    #expect(await hosts[1].ask([3], to: .host(id))?.count == 1)  // after the one before
    #expect(await hosts[0].request("$JS.API.STREAM.INFO.made", "")?.contains("stream not found") == true)
  }
}

extension FleetHost {
  /// Asks until there are so many answers, because a subscription begins a moment after the call.
  func reachesAnswers(_ message: [UInt8], to subject: FleetSubject, count: Int) async -> Bool {
    for _ in 0..<600 {
      if await ask(message, to: subject, count: count, timeout: .milliseconds(500))?.count == count { return true }
      try? await Task.sleep(for: .milliseconds(20))
    }
    return false
  }
}

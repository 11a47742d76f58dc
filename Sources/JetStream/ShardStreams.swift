import Fleet

/// The JetStream streams of a fleet's shards, on one connection. Makes missing streams, and checks existing ones.
///
/// A stream without a leader does not answer, and must not delay the others. So the streams are ready once each has
/// answered or timed out, and at least one is available. The others are asked for again.
final class ShardStreams {
  private unowned let engine: JetStreamEngine
  private let link: UInt32
  /// Shards with a pending question about their stream.
  private var asked: Set<Int> = []
  /// Shards whose first answer has not come yet.
  private var awaited: Set<Int> = []
  /// Shards whose stream does not exist. It is made once all other streams have answered: a host that does not fit them
  /// makes none.
  private var missing: Set<Int> = []
  private var isReady = false
  private var hasStream = false

  /// - Parameter engine: retains it.
  init(_ engine: JetStreamEngine, on link: UInt32) {
    (self.engine, self.link) = (engine, link)
    awaited = Set(0..<engine.options.shardCount)
  }

  /// Begins. `JetStreamEngine.prepared` is called later.
  func prepare() {
    for shard in awaited { look(at: shard) }
  }

  /// Makes a stream again that no longer exists.
  func restore(_ shard: Int) {
    if isReady, !asked.contains(shard) { look(at: shard) }
  }

  private func look(at shard: Int, isMade: Bool = false) {
    asked.insert(shard)
    ask("INFO", about: shard, []) { [self] answer in
      switch JetStreamAnswer.failure(answer)?.code {
      case nil: check(answer, shard)
      case JetStreamAnswer.Failure.streamNotFound where !isMade:
        if isReady { return make(shard) }
        missing.insert(shard)
        makeMissing()
      case _: refused(shard, answer)
      }
    }
  }

  /// Makes the first shard's stream first. If hosts with different numbers of shards begin at once, the host that has
  /// made it makes the others.
  private func makeMissing() {
    guard awaited == missing, let first = missing.min() else { return }
    let shards = first == 0 ? [first] : missing.sorted()
    for shard in shards {
      missing.remove(shard)
      make(shard)
    }
  }

  private func make(_ shard: Int) {
    ask("CREATE", about: shard, Array(configuration(of: shard).utf8)) { [self] answer in
      switch JetStreamAnswer.failure(answer)?.code {
      case nil: check(answer, shard)
      case JetStreamAnswer.Failure.streamNameInUse: look(at: shard, isMade: true)  // another host has made it
      case _: refused(shard, answer)
      }
    }
  }

  private func ask(_ verb: String, about shard: Int, _ bytes: [UInt8], _ receive: @escaping (JSONMembers) -> Void) {
    let name = engine.names.stream(shard)
    engine.request("$JS.API.STREAM.\(verb).\(name)", bytes, whilePreparing: true) { [weak self] answer in
      guard let self else { return true }
      if let answer, answer.status == nil {
        if let members = JSONMembers(answer.bytes) {
          receive(members)
        } else {
          fail("JetStream's answer about the stream \(name) is not understood")
        }
      } else if answer?.status == NATSMessage.noResponders, !isReady {
        fail("JetStream is not available: not enabled for this user, or without a leader")
      } else {
        settle(shard, isThere: false)
      }
      return true
    }
  }

  private func settle(_ shard: Int, isThere: Bool) {
    asked.remove(shard)
    awaited.remove(shard)
    if isThere {
      hasStream = true
    } else {
      _ = engine.loop.schedule(after: engine.options.answerTimeout) { [weak self] in
        guard let self, !asked.contains(shard) else { return }
        look(at: shard)
      }
    }
    makeMissing()
    guard !isReady, awaited.isEmpty else { return }
    guard hasStream else {
      return fail("JetStream does not answer about the stream \(engine.names.stream(shard))")
    }
    isReady = true
    engine.prepared(nil, on: link)
  }

  private func refused(_ shard: Int, _ answer: JSONMembers) {
    let failure = JetStreamAnswer.failure(answer)
    if isReady || failure?.code == JetStreamAnswer.Failure.temporarilyUnavailable {
      return settle(shard, isThere: false)
    }
    fail("JetStream refuses the stream \(engine.names.stream(shard)): \(engine.visible(failure?.text ?? ""))")
  }

  private func check(_ answer: JSONMembers, _ shard: Int) {
    if let problem = problem(answer, shard) {
      return fail("the JetStream stream \(engine.names.stream(shard)) cannot be used: \(problem)")
    }
    settle(shard, isThere: true)
  }

  private func fail(_ problem: String) { engine.prepared(problem, on: link) }

  /// Why the protocol does not work with a stream; nil: it does.
  private func problem(_ answer: JSONMembers, _ shard: Int) -> String? {
    guard let configuration = answer.object("config") else { return "its configuration is not understood" }
    let names = engine.names
    let subject = names.log(shard)
    guard configuration.strings("subjects") == [subject] else { return "its subject is not \(subject)" }
    let shards = engine.options.shardCount
    if let count = shardCount(configuration.string("description") ?? ""), count != shards {
      return "it is one of \(count) shards, and this host has cluster.shards = \(shards)"
    }
    guard configuration.flag("allow_direct") == true else { return "allow_direct is not set" }
    let tail = configuration.object("republish")
    guard tail?.string("src") == subject, tail?.string("dest") == names.tail(shard),
      tail?.flag("headers_only") != true
    else { return "republish is not from \(subject) to \(names.tail(shard))" }
    guard configuration.string("retention") == "limits", configuration.string("discard") == "old" else {
      return "it does not retain its newest entries (retention limits, discard old)"
    }
    guard configuration.flag("no_ack") != true else { return "no_ack is set" }
    guard isUnlimited(configuration, "max_msgs_per_subject") else { return "max_msgs_per_subject is set" }
    guard
      isUnlimited(configuration, "max_msg_size")
        || configuration.number("max_msg_size") ?? 0 >= UInt64(JetStreamOptions.maximumMessageByteCount)
    else { return "max_msg_size is below \(JetStreamOptions.maximumMessageByteCount)" }
    guard configuration.number("num_replicas") ?? 0 >= UInt64(engine.options.replicaCount) else {
      return "it has less than \(engine.options.replicaCount) replicas"
    }
    return nil
  }

  /// A host with another number of shards would look for the fleet's streams in other logs, and fetch them, too.
  private var description: String { "\(Self.descriptionStart)\(engine.options.shardCount)" }

  private static let descriptionStart = "Records of a streamd fleet. Shards: "

  /// The number of shards of the host that made the stream; nil: unknown, for example because an operator made the
  /// stream.
  private func shardCount(_ description: String) -> Int? {
    guard description.hasPrefix(Self.descriptionStart) else { return nil }
    return Int(description.dropFirst(Self.descriptionStart.count))
  }

  /// -1 and 0 mean no limit, and so does a missing member.
  private func isUnlimited(_ configuration: JSONMembers, _ name: String) -> Bool {
    !configuration.has(name) || (configuration.number(name) ?? 0) == 0
  }

  private func configuration(of shard: Int) -> String {
    let options = engine.options
    let names = engine.names
    return """
      {"name":"\(names.stream(shard))","description":"\(description)","subjects":["\(names.log(shard))"],"retention":"limits","storage":"file",\
      "discard":"old","num_replicas":\(options.replicaCount),"max_bytes":\(options.bytesPerShard),\
      "max_msg_size":\(JetStreamOptions.maximumMessageByteCount),"max_msgs":-1,"max_msgs_per_subject":-1,\
      "max_consumers":-1,"max_age":0,"deny_delete":false,"deny_purge":false,"allow_direct":true,\
      "republish":{"src":"\(names.log(shard))","dest":"\(names.tail(shard))"}}
      """
  }
}

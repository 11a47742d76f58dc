import Fleet

/// Makes the JetStream streams of a fleet's shards, and checks those that exist, for one connection. Ends with
/// `JetStreamEngine.prepared`.
final class ShardStreams {
  private unowned let engine: JetStreamEngine
  private let link: UInt32
  private var missingCount: Int
  private var hasEnded = false

  /// - Parameter engine: retains it by its requests.
  init(_ engine: JetStreamEngine, on link: UInt32) {
    (self.engine, self.link) = (engine, link)
    missingCount = engine.options.shardCount
  }

  func prepare() {
    for shard in 0..<engine.options.shardCount { look(at: shard, mayMake: true) }
  }

  private func look(at shard: Int, mayMake: Bool) {
    ask("INFO", about: shard, []) { [self] answer in
      switch JetStreamAnswer.failure(answer)?.code {
      case nil: check(answer, shard)
      case JetStreamAnswer.Failure.streamNotFound where mayMake: make(shard)
      case _: end(refusal(of: shard, answer))
      }
    }
  }

  private func make(_ shard: Int) {
    ask("CREATE", about: shard, Array(configuration(of: shard).utf8)) { [self] answer in
      switch JetStreamAnswer.failure(answer)?.code {
      case nil: check(answer, shard)
      case JetStreamAnswer.Failure.streamNameInUse: look(at: shard, mayMake: false)  // another host has made it
      case _: end(refusal(of: shard, answer))
      }
    }
  }

  private func ask(_ verb: String, about shard: Int, _ bytes: [UInt8], _ receive: @escaping (JSONMembers) -> Void) {
    let name = engine.names.stream(shard)
    engine.request("$JS.API.STREAM.\(verb).\(name)", bytes, whilePreparing: true) { [self] answer in
      if let answer, answer.status == nil, let members = JSONMembers(answer.bytes) {
        receive(members)
      } else if answer?.status == NATSMessage.noResponders {
        end("JetStream is not available: not enabled for this user, or without a leader")
      } else if answer != nil {
        end("JetStream's answer about the stream \(name) is not understood")
      } else {
        end("JetStream does not answer about the stream \(name)")
      }
      return true
    }
  }

  private func refusal(of shard: Int, _ answer: JSONMembers) -> String {
    let text = engine.visible(JetStreamAnswer.failure(answer)?.text ?? "")
    return "JetStream refuses the stream \(engine.names.stream(shard)): \(text)"
  }

  private func check(_ answer: JSONMembers, _ shard: Int) {
    if let problem = problem(answer, shard) {
      return end("the JetStream stream \(engine.names.stream(shard)) cannot be used: \(problem)")
    }
    missingCount -= 1
    if missingCount == 0 { end(nil) }
  }

  private func end(_ problem: String?) {
    guard !hasEnded else { return }
    hasEnded = true
    engine.prepared(problem, on: link)
  }

  /// Why the protocol does not work with a stream; nil if it does.
  private func problem(_ answer: JSONMembers, _ shard: Int) -> String? {
    guard let configuration = answer.object("config") else { return "its configuration is not understood" }
    let names = engine.names
    let subject = names.log(shard)
    guard configuration.strings("subjects") == [subject] else { return "its subject is not \(subject)" }
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

  /// -1 and 0 mean no limit, as does a missing member.
  private func isUnlimited(_ configuration: JSONMembers, _ name: String) -> Bool {
    !configuration.has(name) || (configuration.number(name) ?? 0) == 0
  }

  private func configuration(of shard: Int) -> String {
    let options = engine.options
    let names = engine.names
    return """
      {"name":"\(names.stream(shard))","subjects":["\(names.log(shard))"],"retention":"limits","storage":"file",\
      "discard":"old","num_replicas":\(options.replicaCount),"max_bytes":\(options.bytesPerShard),\
      "max_msg_size":\(JetStreamOptions.maximumMessageByteCount),"max_msgs":-1,"max_msgs_per_subject":-1,\
      "max_consumers":-1,"max_age":0,"deny_delete":false,"deny_purge":false,"allow_direct":true,\
      "republish":{"src":"\(names.log(shard))","dest":"\(names.tail(shard))"}}
      """
  }
}

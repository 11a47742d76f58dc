import CSimulation
import Glibc

// Streams of templates: what clients do with them, what becomes of them, and what must hold.

extension World {
  /// A stream that a template may have made, or may make.
  func someMade() -> StreamSpecification { random.pick(streams.filter { $0.template != nil }) }

  func isOfTemplate(_ name: String) -> Bool { specification(of: name)?.template != nil }

  /// A client makes or deletes a stream.
  func changeMade(isDeletion: Bool) {
    let stream = someMade().name
    let idle = clients.compactMap { $0 as? HTTPClient }.filter {
      !$0.isOver && !$0.hasStoppedReading && $0.canRequest()
    }
    guard clients.count < profile.clients + 4 || !idle.isEmpty else { return }
    let client = random.maybe(idle) ?? connect(as: .random(&random), .http) as? HTTPClient
    client?.change(stream, isDeletion: isDeletion, &random)
  }

  /// A client reads a stream, asks for its newest event, or publishes to it.
  func useMade() {
    let stream = someMade().name
    switch random.below(8) {
    case 0: orderly?.ask(stream)
    case 1, 2: orderly?.subscribe(to: stream, &random)
    case 3: orderly?.fireAndForget(to: stream, &random)
    case 4 where clients.count < profile.clients + 4:
      connect(as: .random(&random), profile.someProtocol(&random))?.subscribe(to: stream, &random)
    default: publish(to: stream)
    }
  }

  // MARK: What the server reports

  /// A stream was made.
  func noteMade(_ name: String, by owner: UInt32?) {
    Report.shared.say("\(name) is made by \(owner.map { "user \($0)" } ?? "somebody")")
    Report.shared.count("templates: streams made")
    guard let owner, !machine.isStarting, owner != geteuid() else { return }
    let candidates = (templates + (reloading?.templates ?? [])).filter { name.hasPrefix($0.prefix + "/") }
    require(
      candidates.contains { $0.isServed && $0.admits(owner) }, "rights before streams are made",
      "\(name) was made by user \(owner), whom its template does not admit")
  }

  /// A stream is gone, with its events.
  func noteForgotten(_ name: String) {
    Report.shared.say("\(name) is forgotten")
    Report.shared.count("templates: streams forgotten")
    truths[name]?.endLife()
  }

  // MARK: Rules

  /// The streams of each template that may be there: its limit, or as many as there were when that was lowered.
  func checkTemplates() {
    guard !templates.isEmpty, sim_is_dead() == 0 else { return }
    for (prefix, count) in machine.templates {
      guard let specification = templates.first(where: { $0.prefix == prefix }) else { continue }
      let limits = [specification.limit] + (reloading?.templates.filter { $0.prefix == prefix }.map(\.limit) ?? [])
      let allowed = max(limits.max()!, madeAllowed[prefix] ?? 0)
      require(
        count <= allowed, "limits", "\(prefix)/{x} has \(count) streams, and may have \(allowed)")
      if reloading == nil { madeAllowed[prefix] = count }
    }
    let served = Set((templates + (reloading?.templates ?? [])).filter(\.isServed).map(\.prefix))
    for name in machine.madeStreams where !machine.isReloading && !name.hasPrefix("q/") {
      require(
        served.contains(String(name.prefix { $0 != "/" })), "templates",
        "\(name) is served, and its template is not")
    }
    // What is being forgotten is not there any more, and a kill may undo that.
    for stream in streams where stream.template != nil && !machine.isMade(stream.name) {
      truths[stream.name]?.noteAbsence()
    }
  }

  /// All clients have left: unused streams are forgotten, and then each user can have his share.
  func checkShares() {
    guard limits.connections == Machine.Limits().connections else { return }
    for template in templates where template.isServed && template.forgetMilliseconds != nil && profile.memory == nil {
      for user in StreamSpecification.users where template.stream.readers?.contains(user) ?? true {
        turn(500)
        sim_pass(UInt64(template.forgetMilliseconds!) * 1_000_000 + 20_000_000_000)
        for _ in 0..<8 {
          turn(500)
          sim_pass(2_000_000_000)
        }
        let left = machine.madeStreams.filter { $0.hasPrefix(template.prefix + "/") }
        require(
          left.isEmpty, "unused streams are forgotten",
          "\(left) are left of \(template.prefix)/{x}, and nobody uses them")
        checkShare(of: user, in: template)
      }
    }
  }

  private func checkShare(of user: UInt32, in template: TemplateSpecification) {
    guard let client = connect(as: .user(user), .rsocket) as? RSocketClient else { return }
    client.isEager = true
    // As many as are free then, and one in any case.
    let share = (template.limit + 1) / 2
    let names = TemplateSpecification.values.prefix(share).map { "\(template.prefix)/\($0)" }
    for name in names {
      // It may need a lease first.
      for _ in 0..<10 where !client.subscriptions.values.contains(where: { $0.stream == name }) {
        turn(200)
        client.receive()
        client.follow(name)
      }
    }
    for _ in 0..<4 {
      turn(500)
      client.receive()
      client.keepAlive()
    }
    for name in names {
      require(
        machine.isServed(name), "limits",
        "user \(user) has a share of \(share) streams of \(template.prefix)/{x}, and does not get \(name)")
    }
    Report.shared.count("templates: shares")
    client.close()
    clients.removeAll { $0.isOver }
  }
}

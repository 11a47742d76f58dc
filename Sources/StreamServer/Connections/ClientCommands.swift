import RSocket
import StreamProtocol
import StreamRuntime

/// The commands of one connection that have no reply yet.
final class ClientCommands: @unchecked Sendable {  // confined to its connection's loop
  /// The speaker of the connection that owns this value.
  private let speaker: RSocketSpeaker
  private var commands: [StreamID: UInt64] = [:]
  /// The number of the last command. A client may use an id again after CANCEL: the number tells the late result of the
  /// former command from that of the later one.
  private var commandCount: UInt64 = 0

  init(_ speaker: RSocketSpeaker) { self.speaker = speaker }

  private var connection: Connection { speaker.connection }
  private var worker: Worker { connection.worker }

  var ids: [StreamID] { commands.keys.sorted() }

  /// Most commands are for the daemon's user and root.
  /// - Parameter data: the data of the request.
  func request(_ id: StreamID, _ data: [UInt8]) {
    worker.loop.assertOnLoop()
    do throws(SubscribeOptions.Malformed) {
      let command = try ControlCommand(json: data)
      guard command.isForEverybody || isOwner else { return refuse(id) }
      commandCount += 1
      let number = commandCount
      commands[id] = number
      perform(command) { [self] in answer(id, number, $0) }
    } catch {
      if isOwner { speaker.sendFailure(RequestID(id), .init(error)) } else { refuse(id) }
    }
  }

  private var isOwner: Bool { AccessRules.owner.admit(connection.identity.credentials, groups: { [] }) }

  private func refuse(_ id: StreamID) {
    let sentence = "\(connection.identity.user) may not give commands: only root and the daemon's user may"
    connection.refuse(RequestID(id), .init(ControlCommand.route, .init(.mayNotCommand, sentence)))
  }

  /// - Parameter completed: called on the loop; nil: the command has taken effect.
  private func perform(_ command: ControlCommand, completed: @escaping (RequestFailure?) -> Void) {
    switch command {
    case .kick: break
    case .refresh(let name):
      // The stream is made first.
      guard connection.isOfTemplate(name), let needed = try? connection.neededStream(name, for: .any) else { break }
      let completion = OnLoop(completed)
      return connection.make(needed) { [self] failure, _ in
        if let failure { return completed(failure) }
        perform(toServer: command, completion)
      }
    case .make(let name):
      do throws(Connection.Refusal) {
        guard connection.isOfTemplate(name), let needed = try connection.neededStream(name, for: .any) else {
          _ = try connection.stream(named: name)
          return completed(.init(.noEffect, "\"\(name)\" is configured: only streams of templates are made"))
        }
        return connection.make(needed) { failure, _ in completed(failure) }
      } catch {
        connection.report(error)
        return completed(error.failure)
      }
    case .forget(let name):
      guard connection.isOfTemplate(name) || worker.streams[name] == nil else {
        return completed(.init(.noEffect, "\"\(name)\" is configured: only streams of templates are deleted"))
      }
      return connection.delete(name, completed: completed)
    }
    perform(toServer: command, OnLoop(completed))
  }

  private func perform(toServer command: ControlCommand, _ completion: OnLoop) {
    worker.systemStreams.perform(command, for: connection.identity) { [worker] failure in
      worker.loop.execute { completion.completed(failure) }
    }
  }

  /// A completion, which other threads carry to the loop.
  private final class OnLoop: @unchecked Sendable {
    let completed: (RequestFailure?) -> Void
    init(_ completed: @escaping (RequestFailure?) -> Void) { self.completed = completed }
  }

  /// - Parameter failure: nil: the command has taken effect.
  private func answer(_ id: StreamID, _ number: UInt64, _ failure: RequestFailure?) {
    worker.loop.assertOnLoop()
    guard commands[id] == number else { return }
    commands[id] = nil
    if let failure {
      speaker.sendFailure(RequestID(id), failure)
    } else {
      speaker.machine.sendPayload(id, Payload(data: []), isComplete: true)
    }
    connection.settle()
    _ = connection.flush()
  }

  /// The client has cancelled.
  func leave(_ id: StreamID) { commands[id] = nil }

  /// Ends all commands with an error: another process does not know them.
  func end(with failure: RequestFailure) {
    for id in ids { speaker.sendFailure(RequestID(id), failure) }
    commands = [:]
  }

  /// The connection has ended.
  func leaveAll() { commands = [:] }
}

